package redishold_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/redishold"
)

// said is an error that a server answered with, as go-redis has them.
type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

// plain is a client that knows no more than redishold.Client asks. When it is
// deaf, it does not look at contexts, and nothing is answered until it is closed.
type plain struct {
	rueidis.Client
	deaf chan struct{}
}

func (p plain) Do(_ context.Context, commands ...[]string) []redishold.Reply {
	<-p.deaf
	replies := make([]redishold.Reply, len(commands))
	for i, words := range commands {
		v, err := p.Client.Do(context.Background(), p.B().Arbitrary(words...).Build()).ToAny()
		if re, ok := rueidis.IsRedisErr(err); ok && !re.IsNil() {
			err = said(re.Error())
		} else if ok {
			err = nil
		}
		replies[i] = redishold.Reply{Value: v, Err: err}
	}
	return replies
}

func (p plain) Subscribe(ctx context.Context, channel string, ready func(), hear func(string)) error {
	ready()
	return p.Receive(ctx, p.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) { hear(m.Message) })
}

// TestAnyClient: a client of another library serves; what the server refuses is
// known, a script that it has forgotten is sent again, and a call ends with its
// context although the library does not look at it.
func TestAnyClient(t *testing.T) {
	server := services.Redis(t)
	rc := admin(t, server.URL())
	hears, deaf := make(chan struct{}), make(chan struct{})
	close(hears)
	space := func(p plain) *holdfast.Space {
		d, err := redishold.NewWith(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := holdfast.New(d)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	s, other := space(plain{rc, hears}), open(t, server.URL())
	if s.Info().Features[driver.FeatureLostFirst] {
		t.Error("lost-first is declared of a server that nobody knows")
	}
	for range 2 {
		hold, err := s.Mutex("m").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Mutex("m").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("beside a client of rueidis: %v", err)
		}
		if err := hold.Release(); err != nil {
			t.Error(err)
		}
		do(t, rc, "SCRIPT", "FLUSH")
	}
	for range 3 { // the first by a script, then by INCRBY
		if _, err := s.Counter("c").Add(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := other.Counter("c").Load(t.Context()); n != 15 || err != nil {
		t.Errorf("the counter has %d, %v", n, err)
	}
	do(t, rc, "CONFIG", "SET", "maxmemory", "1")
	if _, err := s.Mutex("n").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) || !strings.Contains(err.Error(), "raise maxmemory") {
		t.Errorf("out of memory: %v", err)
	}
	do(t, rc, "CONFIG", "SET", "maxmemory", "0")
	brief, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	hard := space(plain{rc, deaf})
	go func() { ended <- second(hard.Counter("c").Load(brief)) }()
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a library that does not look at the context: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("a library that does not look at the context keeps the caller")
	}
	close(deaf)
	if _, err := redishold.NewWith(nil, nil); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
}
