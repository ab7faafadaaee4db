//go:build unix

package services

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// An M runs the tests of a package and stops the shared servers after them.
type M struct{ tests *testing.M }

// Main is for TestMain. It keeps what tests of one package can share (the
// servers of the Shared functions and PostgreSQL's initial cluster) until they
// have run:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(services.Main(m)) }
//	func TestMain(m *testing.M) { os.Exit(services.Main(m).Run()) }
func Main(m *testing.M) *M { return &M{m} }

// Run runs the tests and returns the status to exit with.
func (m *M) Run() int {
	holdScratch()
	openShared()
	status := m.tests.Run()
	if err := errors.Join(closeShared(), dropScratch()); err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
		return cmp.Or(status, 1)
	}
	return status
}

// shared holds the servers that all tests of the package use.
var shared struct {
	mu                      sync.Mutex
	open                    bool
	redis, postgresql, nats *unit
}

func openShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.open = true
}

func closeShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.open = false
	var failed []error
	for _, slot := range []**unit{&shared.redis, &shared.postgresql, &shared.nats} {
		if *slot != nil {
			failed = append(failed, (*slot).discard())
			*slot = nil
		}
	}
	return errors.Join(failed...)
}

// borrow returns the server in slot, which the first test to ask launches, or
// the one that the environment names.
func borrow(t testing.TB, slot **unit, variable string, launch func() (*unit, error)) Process {
	t.Helper()
	if address := os.Getenv(variable); address != "" {
		return foreign(t, variable, address)
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.open {
		t.Fatal("services: shared servers need a TestMain: func TestMain(m *testing.M) { os.Exit(services.Main(m).Run()) }")
	}
	if *slot == nil {
		u, err := launch()
		if err != nil {
			t.Fatalf("services: %v", err)
		}
		*slot = u
	}
	return Process{t: t, url: (*slot).url, unit: *slot,
		refusal: "the server is shared with other tests; start a private one for this test"}
}
