package cli

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// slow answers late, and one thing at a time; its URL says how late.
type slow struct {
	driver.Driver
	late time.Duration
}

func init() {
	driver.Register("slowly", func(ctx context.Context, u *url.URL) (driver.Driver, error) {
		d, err := driver.Open(ctx, "mem://slowly")
		late, _ := time.ParseDuration(u.Opaque)
		return slow{d, late}, err
	})
}

func (s slow) wait(ctx context.Context) error {
	select {
	case <-time.After(s.late):
		return nil
	case <-ctx.Done():
		return &driver.Error{Kind: ctx.Err()}
	}
}

func (s slow) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	if err := s.wait(ctx); err != nil {
		return driver.InspectReply{}, err
	}
	one := *r
	one.Max = 1
	return s.Driver.Inspect(ctx, &one)
}

func (s slow) SessionInfo(ctx context.Context, r *driver.SessionInfoRequest) (driver.SessionInfo, error) {
	if err := s.wait(ctx); err != nil {
		return driver.SessionInfo{}, err
	}
	one := *r
	one.Max = 1
	return s.Driver.SessionInfo(ctx, &one)
}

func (s slow) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	for i := range r.Then {
		r.Then[i].Limit = 1
	}
	return s.Driver.Txn(ctx, r)
}

// listed fills a memory with three of everything, and returns the id of the session that has them.
func listed(t *testing.T, s *holdfast.Space) string {
	t.Helper()
	session, err := s.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		h, err := s.Mutex(name).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Release() }) // one that nobody refers to is given back
		if _, err := s.KV().Put(t.Context(), name, nil, holdfast.Under(session)); err != nil {
			t.Fatal(err)
		}
	}
	return session.ID().String()
}

// --timeout is for each answer: lists come whole, however long that takes.
func TestListsComeWhole(t *testing.T) {
	warm := make(chan os.Signal, 1) // the runtime's goroutine for signals is not one of the bubble
	signal.Notify(warm, os.Interrupt)
	signal.Stop(warm)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := holdfast.Open(t.Context(), "mem://slowly")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		id := listed(t, s)
		for _, command := range []string{"ls", "kv ls", "session ls", "session show " + id} {
			for late, want := range map[string]int{"20s": 0, "40s": exitTimeout} {
				began := time.Now()
				code, said := runApp(t, dir, append([]string{"--url", "slowly:" + late}, strings.Fields(command)...)...)
				if took := time.Since(began); code != want || code == 0 && took < 40*time.Second || code != 0 && took != 30*time.Second {
					t.Errorf("%s of a backend that takes %s to answer: %d after %s, want %d: %s", command, late, code, took, want, said)
				}
			}
		}
	})
}

// runApp runs the program within this one.
func runApp(t *testing.T, dir string, args ...string) (code int, said string) {
	t.Helper()
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	code = (&app{in: os.Stdin, out: out, errOut: out}).main(append([]string{"--config", os.DevNull}, args...))
	b, _ := os.ReadFile(out.Name())
	return code, string(b)
}

// What is made of a patience ends as with a deadline, which everything heard moves; a signal is
// told as such.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &app{timeout: 30 * time.Second}
		p, cancel := a.patience(t.Context())
		defer cancel()
		below, stop := context.WithCancel(p)
		defer stop()
		for range 3 {
			if <-time.After(20 * time.Second); p.Err() != nil || below.Err() != nil || p.left() != 10*time.Second {
				t.Fatalf("it ends with %v, %s before", p.Err(), p.left())
			}
			p.came()
		}
		began := time.Now()
		<-below.Done()
		if !errors.Is(p.Err(), context.DeadlineExceeded) || !errors.Is(below.Err(), context.DeadlineExceeded) || time.Since(began) != a.timeout {
			t.Errorf("after %s: %v, %v", time.Since(began), p.Err(), below.Err())
		}
		asked, ask := context.WithCancelCause(t.Context())
		p, cancel = a.patience(asked)
		defer cancel()
		ask(signalled{syscall.SIGTERM})
		if <-p.Done(); !errors.Is(p.Err(), context.Canceled) || !errors.Is(context.Cause(p), signalled{syscall.SIGTERM}) {
			t.Errorf("%v by %v", p.Err(), context.Cause(p))
		}
	})
}

// asked is a backend that answers when a signal has come.
type asked struct {
	driver.Driver
	sigs *signals
	in   string
}

func (a *asked) signal(ctx context.Context, in string) {
	if in == a.in {
		a.in = ""
		a.sigs.c <- syscall.SIGTERM
		<-ctx.Done()
	}
}

func (a *asked) Ping(ctx context.Context) error {
	a.signal(ctx, "ping")
	return nil
}

func (a *asked) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	a.signal(ctx, "put")
	return a.Driver.Txn(context.WithoutCancel(ctx), r)
}

var askedOf *asked

func init() {
	driver.Register("asked", func(ctx context.Context, _ *url.URL) (d driver.Driver, err error) {
		askedOf.Driver, err = driver.Open(ctx, "mem:")
		return askedOf, err
	})
}

// A signal that comes with the last answer of a start is heard.
func TestSignals_WithTheAnswer(t *testing.T) {
	for _, in := range []string{"ping", "put"} {
		askedOf = &asked{sigs: &signals{make(chan os.Signal, 1)}, in: in}
		h := &holding{a: &app{url: "asked:", timeout: time.Minute}}
		s, err := h.a.openSoon(askedOf.sigs)
		if in == "put" {
			if err != nil {
				t.Fatal(err)
			}
			c := h.a.sessionKeepCommand()
			_, err = h.openSession(askedOf.sigs, s, c.Flags(), "holdfast", [][2]string{{"k", "v"}})
			if e, kerr := s.KV().Get(t.Context(), "k"); kerr == nil {
				t.Errorf("the session is left behind, with %q", e.Value)
			}
			_ = s.Close()
		}
		if !errors.Is(err, signalled{syscall.SIGTERM}) {
			t.Errorf("a signal in the last %s: %v", in, err)
		}
	}
}
