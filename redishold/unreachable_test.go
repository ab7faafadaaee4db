package redishold_test

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/redishold"
)

// TestServersThatCannotServe are ErrUnavailable, and certainly not done, with
// advice.
func TestServersThatCannotServe(t *testing.T) {
	primary := services.Redis(t)
	for name, c := range map[string]struct {
		server *services.RedisServer
		advice string
	}{
		"replica":       {services.Redis(t, services.ReplicaOf(primary)), "connect to the primary"},
		"out of memory": {services.Redis(t, services.Setting("maxmemory", "100kb")), "raise maxmemory"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, c.server.URL())
			for what, err := range map[string]error{
				"acquire": second(s.Mutex("m").TryAcquire(t.Context())),
				"count":   second(s.Counter("c").Add(t.Context(), 1)),
				"put":     second(s.KV().Put(t.Context(), "k", nil)),
			} {
				if !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) || !strings.Contains(err.Error(), c.advice) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// TestNothingListens: what was not sent, since there is no connection, is certainly not done.
func TestNothingListens(t *testing.T) {
	server := services.Redis(t)
	s := open(t, server.URL())
	calls := map[string]func() error{
		"acquire": func() error { return second(s.Mutex("m").TryAcquire(t.Context())) },
		"count":   func() error { return second(s.Counter("c").Add(t.Context(), 1)) },
		"put":     func() error { return second(s.KV().Put(t.Context(), "k", nil)) },
		"limit": func() error {
			return second(s.Limiter("l", limit.Rate{Count: 1, Per: time.Hour}).Allow(t.Context(), "k"))
		},
	}
	if err := calls["count"](); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for what, call := range calls {
		var err error
		eventually(t, what+" never finds that nothing listens", func() bool {
			err = call()
			return errors.Is(err, syscall.ECONNREFUSED)
		})
		if !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) || strings.Contains(err.Error(), "nobody knows") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestWrongPasswordIsNeverShown(t *testing.T) {
	server := services.Redis(t, services.Password("correct-horse"))
	wrong := strings.Replace(server.URL(), "correct-horse", "battery-staple", 1)
	_, err := holdfast.Open(t.Context(), wrong)
	if !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("a wrong password: %v", err)
	}
	if strings.Contains(err.Error(), "staple") || strings.Contains(err.Error(), "horse") {
		t.Errorf("the text shows a password: %v", err)
	}
	open(t, server.URL())
}

func TestUnreachable(t *testing.T) {
	_, err := holdfast.Open(t.Context(), "redis://user:secret@127.0.0.1:1")
	if !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) {
		t.Fatalf("nobody there: %v", err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the text shows a password: %v", err)
	}
}

func TestBadURLs(t *testing.T) {
	for _, url := range []string{
		"redis://h?holdfast_prefix={x}", "redis://h?holdfast_max_name=513", "redis://h?holdfast_max_name=x", "redis://h?holdfast_nonsense=1",
		"redis://h?holdfast_busy_wait_min=1s&holdfast_busy_wait_max=1ms", "redis://h?holdfast_extension=9s&holdfast_min_validity=8s",
		"redis://h/notanumber", "redis://h?dial_timeout=soon",
	} {
		if _, err := driver.Open(t.Context(), url); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v", url, err)
		}
	}
	for url, why := range map[string]string{
		"redis://h?holdfast_extension=soon": `holdfast_extension="soon": time: invalid duration "soon"`,
		"redis://h?holdfast_max_name=x":     `holdfast_max_name="x": invalid syntax`,
	} {
		if _, err := driver.Open(t.Context(), url); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v; want %s", url, err, why)
		}
	}
	if _, err := redishold.New(nil, nil); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
}
