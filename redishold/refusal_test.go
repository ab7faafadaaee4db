package redishold_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/kthtrip"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestRefusedRelease: a release that the server refuses once, for whatever
// reason, is sent again until it is heard.
func TestRefusedRelease(t *testing.T) {
	server := services.SharedRedis(t)
	other := open(t, server.URL())
	for fault := range refusals {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			p, name := kthtrip.NewPath(t, commands, server.URL(), server.Addr()), unique(t)
			s := open(t, p.URL())
			h, err := s.Mutex(name).Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p.Arm(1, fault)
			if err := h.Release(); err != nil && !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("a release that is refused once: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			if _, err := other.Mutex(name).Acquire(ctx); err != nil {
				t.Errorf("the name is not free: %v", err)
			}
		})
	}
}

// TestRefusedRevoke: a session that is ended is ended on the server too, although
// that refuses it once or its answer is lost; its TTL may be long.
func TestRefusedRevoke(t *testing.T) {
	server := services.SharedRedis(t)
	other := open(t, server.URL())
	for _, fault := range []kthtrip.Fault{kthtrip.CutBefore, "BUSY", "ERR"} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			p, name := kthtrip.NewPath(t, commands, server.URL(), server.Addr()), unique(t)
			space := open(t, p.URL())
			s, err := space.Session(t.Context(), holdfast.TTL(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			h, err := space.Mutex(name, holdfast.Under(s)).Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			keep(t, h)
			p.Arm(1, fault)
			if err := s.Revoke(); err == nil {
				t.Error("a session was revoked that the server did not hear of")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			if _, err := other.Mutex(name).Acquire(ctx); err != nil {
				t.Errorf("the name is not free: %v", err)
			}
		})
	}
}

// TestRefusedAfterItRan: what is refused in words that may come after it has been done is not told as not done, and
// not done again: neither by a script, as an unsigned counter is changed, nor by a command alone, as one that is signed
// and known to be there.
func TestRefusedAfterItRan(t *testing.T) {
	server := services.SharedRedis(t)
	for fault := range endings {
		for _, signed := range []bool{false, true} {
			t.Run(fmt.Sprint(fault, signed), func(t *testing.T) {
				p := kthtrip.NewPath(t, commands, server.URL(), server.Addr())
				counter := open(t, p.URL()).Counter(unique(t))
				add := func(n uint64) (uint64, error) { return counter.Unsigned().Add(t.Context(), n) }
				if signed {
					add = func(n uint64) (uint64, error) {
						sum, err := counter.Add(t.Context(), int64(n))
						return uint64(sum), err
					}
				}
				for range 2 { // its script is loaded, and the counter known
					if _, err := add(1); err != nil {
						t.Fatal(err)
					}
				}
				p.Arm(1, fault)
				_, err := add(5)
				n, look := add(0)
				if look != nil || n != 7 || holdfast.NotDone(err) {
					t.Errorf("5 were added to 2: %d, %v; and told is %v", n, look, err)
				}
			})
		}
	}
}

// TestUndoRefused: a try of several names that could not give back what it had taken does not say that nothing was
// done.
func TestUndoRefused(t *testing.T) {
	server := services.SharedRedis(t)
	p, name := kthtrip.NewPath(t, commands, server.URL(), server.Addr()), unique(t)
	s, other := open(t, p.URL()), open(t, server.URL())
	acquire(t, other, name+"b")
	for k := 1; k < 10; k++ {
		h, err := s.Mutex(name + "warm").Acquire(t.Context())
		if err != nil || h.Release() != nil {
			t.Fatal(err)
		}
		p.Arm(k, "BUSY")
		_, err = s.TryAcquireAll(t.Context(), s.Mutex(name+"a").Want(), s.Mutex(name+"b").Want())
		p.Disarm()
		if !errors.Is(err, holdfast.ErrHeld) || !strings.Contains(err.Error(), "BUSY") {
			continue
		}
		if holdfast.NotDone(err) {
			t.Errorf("the first name was not given back: %v", err)
		}
		return
	}
	t.Error("no call says that it could not give back what it had taken")
}

// TestHandOverUnheard: a leader that does not hear whether it handed over leads no
// more: another may.
func TestHandOverUnheard(t *testing.T) {
	server := services.SharedRedis(t)
	p, name := kthtrip.NewPath(t, commands, server.URL(), server.Addr()), unique(t)
	s, other := open(t, p.URL()), open(t, server.URL())
	l, err := s.Election(name).Campaign(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	waits, elected := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := other.Election(name, holdfast.Owner("next"), holdfast.OnWait(func(int) { close(waits) })).Campaign(t.Context(), nil)
		elected <- err
	}()
	<-waits
	p.Arm(1, kthtrip.CutAfter)
	if err := l.HandOver(t.Context(), "next"); err == nil || holdfast.NotDone(err) {
		t.Fatalf("an answer that did not come: %v", err)
	}
	if err := l.Err(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the leader still believes in its leadership: %v", err)
	}
	if err := <-elected; err != nil {
		t.Error(err)
	}
}

// TestRefusedWithinAScript: a script that is refused one of its commands may have run others:
// that is not told as not done, and a repetition under the same id counts once.
func TestRefusedWithinAScript(t *testing.T) {
	server := services.Redis(t)
	do(t, admin(t, server.URL()), "ACL", "SETUSER", "unheard", "on", ">secret", "~*", "resetchannels", "+@all")
	s, other := open(t, strings.Replace(server.URL(), "redis://", "redis://unheard:secret@", 1)), open(t, server.URL())
	_, err := s.KV().Put(t.Context(), "k", nil)
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a user without channels: %v", err)
	}
	if _, missing := other.KV().Get(t.Context(), "k"); missing == nil && holdfast.NotDone(err) {
		t.Errorf("a put that was done is told as not done: %v", err)
	}
	b := s.Counter("n").Buffered(1000, time.Hour)
	if err := b.Add(5); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err = b.Flush(t.Context())
	}
	if n, e := other.Counter("n").Load(t.Context()); e != nil || n > 5 {
		t.Errorf("5 were counted as %d: %v, %v", n, err, e)
	}
}
