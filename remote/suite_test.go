package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/drivertest"
	"github.com/holdfast-io/holdfast/internal/bridge"
	_ "github.com/holdfast-io/holdfast/remote"
)

// serveEnv makes the test binary a server on the directory that it names.
const serveEnv = "REMOTE_TEST_SERVE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveEnv); dir != "" {
		if err := serveAlone(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if url := os.Getenv(holdEnv); url != "" {
		if err := holdAlone(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func stall(s *holdfast.Space) (resume func()) { return bridge.Driver(s).(bridge.Staller).Stall() }

// harness runs the suite against a group.
func harness(g *group) drivertest.Harness {
	h := drivertest.URL(g.url())
	h.Stall, h.Cut, h.Flood = stall, stall, true
	h.TTL = 3 * time.Second // a busy disk may keep a renewal waiting for long
	return h
}

// TestConformance runs the suite that every backend passes against one node.
func TestConformance(t *testing.T) { drivertest.Run(t, harness(newGroup(t, 1, fast))) }

// TestConformanceOfThree runs it against three. internal/world runs it while nodes fail.
func TestConformanceOfThree(t *testing.T) {
	h := harness(newGroup(t, 3, steady))
	h.TTL = 5 * time.Second // the least of a group with that tick
	drivertest.Run(t, h)
}

// The server keeps its own state in namespaces that no client can open.
func TestReservedNamespace(t *testing.T) {
	s, err := holdfast.Open(t.Context(), newGroup(t, 1, fast).url()+"/holdfast.registers.default")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Mutex("m").Acquire(t.Context()); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("got %v, want a refusal", err)
	}
}

// A namespace may have letters of any alphabet; one that no server takes is refused, not
// waited for.
func TestNamespaceOfAnyAlphabet(t *testing.T) {
	g := newGroup(t, 1, fast)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // for a test that fails
	defer cancel()
	inspect := func(namespace string) (int, error) {
		s, err := holdfast.Open(ctx, g.url()+"/"+namespace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		h, err := s.Mutex("of " + namespace).Acquire(ctx)
		if err != nil {
			return 0, err
		}
		defer h.Release()
		n := 0
		for r, err := range s.List(ctx, "") {
			if n++; err != nil || r.Name != "of "+namespace {
				t.Errorf("%s: there is %q (%v)", namespace, r.Name, err)
			}
		}
		return n, nil
	}
	for _, namespace := range []string{"", "plain", "%C3%A9quipe", "team%2Fa", "team%2Fb"} {
		if n, err := inspect(namespace); n != 1 || err != nil {
			t.Errorf("%q has %d names: %v", namespace, n, err)
		}
	}
	if _, err := inspect("a%00b"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a control character: %v", err)
	}
}

// A Space that no server takes says so to calls that wait for one, whichever they are.
func TestRefusedSpace(t *testing.T) {
	url := newGroup(t, 1, fast).url() + "/holdfast.x"
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // for a test that fails
	t.Cleanup(cancel)
	for name, call := range map[string]func(s *holdfast.Space) error{
		"Ping":    func(s *holdfast.Space) error { return s.Ping(ctx) },
		"Inspect": func(s *holdfast.Space) error { _, err := s.Inspect(ctx, "m"); return err },
		"List":    func(s *holdfast.Space) error { return firstError(s.List(ctx, "")) },
		"Watch":   func(s *holdfast.Space) error { return firstError(s.Watch(ctx, "k", 0)) },
		"history": func(s *holdfast.Space) error { return firstError(s.Watch(ctx, "k", 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := holdfast.Open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := call(s); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("got %v, want the server's refusal", err)
			}
		})
	}
}

// firstError is the first that comes.
func firstError[T any](seq iter.Seq2[T, error]) (err error) {
	for _, err = range seq {
		if err != nil {
			break
		}
	}
	return err
}

// A TTL that the server does not take is an error, not a wait.
func TestTooShort(t *testing.T) {
	s, err := holdfast.Open(t.Context(), newGroup(t, 3, steady).url())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Mutex("m", holdfast.TTL(2*time.Second)).Acquire(t.Context()); !errors.Is(err, fs.ErrInvalid) || !holdfast.NotDone(err) {
		t.Errorf("Acquire: %v", err)
	}
	if _, err := s.Session(t.Context(), holdfast.TTL(2*time.Second)); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("Session: %v", err)
	}
}
