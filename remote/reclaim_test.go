package remote_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/remote"
)

// holdEnv makes the test binary a holder at the node that it names, until it is killed.
const holdEnv = "REMOTE_TEST_HOLD"

// holdAlone is that other process: it says its token.
func holdAlone(url string) error {
	ctx := context.Background()
	s, err := holdfast.Open(ctx, url)
	if err != nil {
		return err
	}
	h, err := s.Mutex("killed", lapses()...).Acquire(ctx)
	if err != nil {
		return err
	}
	fmt.Println(uint64(h.Token()))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// lapses are the terms of holders that go away. The real ones are renewed meanwhile, also by a busy machine.
func lapses(opts ...holdfast.HoldOption) []holdfast.HoldOption {
	return append(opts, holdfast.TTL(5*time.Second), holdfast.ReclaimOnDemand(time.Second), holdfast.Owner("old"))
}

// A holder that is killed or cut off while another waits is told as stale, its name is
// reclaimed with a new token when the grace has passed, and what it says afterwards changes nothing.
func TestReclaim(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1, steady)
	for name, hold := range map[string]func(*testing.T, *group) *lapsing{"killed": killedHolder, "cut off": cutOffHolder} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openAt(t, g.cfgs[0].Founders[0].Client)
			next, stop := iter.Pull2(s.Watch(t.Context(), name, 0, holdfast.Patterns{"lock:*"}))
			defer stop()
			sees(t, next, "watch:ready", 0)
			old, granted := hold(t, g), make(chan *holdfast.Hold, 1)
			sees(t, next, "lock:acquired", old.token)
			go func() {
				h, err := s.Mutex(name).Acquire(t.Context())
				if err != nil {
					t.Error(err)
				}
				granted <- h
			}()
			sees(t, next, "lock:queued", 0)
			old.goAway()
			sees(t, next, "lock:stale", old.token)
			reclaimed(t, s, next, old, name, <-granted)
		})
	}
}

// The same of one that is merely silent, where its name is wanted within the grace.
func TestReclaim_Silent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := remote.Open(bubbleNode(t).client())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		next, stop := iter.Pull2(s.Watch(t.Context(), "silent", 0, holdfast.Patterns{"lock:*"}))
		defer stop()
		sees(t, next, "watch:ready", 0)
		h, err := s.Mutex("silent", lapses(holdfast.ManualRenew())...).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sees(t, next, "lock:acquired", h.Token())
		sees(t, next, "lock:stale", h.Token())
		now, err := s.Mutex("silent").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sees(t, next, "lock:queued", 0)
		reclaimed(t, s, next, &lapsing{token: h.Token(), late: h.Release}, "silent", now)
	})
}

// lapsing is a holder that can go away; late is what it does with its hold when that is lost.
type lapsing struct {
	token  holdfast.Token
	goAway func()
	late   func() error
}

// reclaimed expects the name to be the next one's.
func reclaimed(t *testing.T, s *holdfast.Space, next func() (holdfast.Event, error, bool), old *lapsing, name string, h *holdfast.Hold) {
	t.Helper()
	sees(t, next, "lock:reclaimed", old.token)
	sees(t, next, "lock:acquired", h.Token())
	if err := old.late(); !errors.Is(err, holdfast.ErrLost) || h.Token() <= old.token {
		t.Errorf("the late release of %d, now %d: %v", old.token, h.Token(), err)
	}
	if info, err := s.Inspect(t.Context(), name); err != nil || len(info.Holders) != 1 || info.Holders[0].Token != h.Token() {
		t.Errorf("after the late release: %+v, %v", info, err)
	}
}

// sees expects what the watch tells next.
func sees(t *testing.T, next func() (holdfast.Event, error, bool), what string, token holdfast.Token) {
	t.Helper()
	e, err, _ := next()
	if err != nil || e.Kind+":"+e.Verb != what || token != 0 && e.Token != token {
		t.Fatalf("the watch tells %s of token %d (%v), want %s of %d", e.String(), e.Token, err, what, token)
	}
}

func killedHolder(t *testing.T, g *group) *lapsing {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+g.url())
	cmd.Stderr = t.Output()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	line, err := bufio.NewReader(out).ReadString('\n')
	token, err2 := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	kill := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
	return &lapsing{holdfast.Token(token), kill, func() error { return holdfast.ErrLost }}
}

func cutOffHolder(t *testing.T, g *group) *lapsing {
	link := services.Proxy(t, g.cfgs[0].Founders[0].Client)
	h, err := openAt(t, link.Addr()).Mutex("cut off", lapses()...).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &lapsing{h.Token(), func() { link.Cut() }, func() error { link.Heal(); return h.Release() }}
}
