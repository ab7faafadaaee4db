package remote_test

import (
	"errors"
	"fmt"
	"io/fs"
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
func TestConformanceOfThree(t *testing.T) { drivertest.Run(t, harness(newGroup(t, 3, fast))) }

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
