//go:build unix

package services

import (
	"net/url"
	"testing"
	"time"
)

// A Process is a running server. Its methods fail the test when
// they cannot do what they say, and when the server is shared with other tests
// or is not ours. They may be called from several goroutines.
type Process struct {
	t       testing.TB
	url     *url.URL
	unit    *unit  // nil when the server is not ours
	refusal string // why this test may not touch the program; "" when it may
}

// Addr returns the server's "host:port".
func (p *Process) Addr() string { return p.url.Host }

// Pid returns the process id, or 0 when the program does not run here.
func (p *Process) Pid() int {
	if p.unit == nil {
		return 0
	}
	return p.unit.pid()
}

// Kill ends the program and its children at once (SIGKILL), with no chance to
// flush or say goodbye. It returns when they are gone. Killing a program that has ended
// does nothing.
func (p *Process) Kill() {
	p.t.Helper()
	p.control("kill", func(u *unit) error { return u.kill() })
}

// Stop freezes the program and its children (SIGSTOP): connections stay open
// and nothing answers until Cont. It returns when every thread stands still.
func (p *Process) Stop() {
	p.t.Helper()
	p.control("stop", func(u *unit) error {
		return u.onTree("stop", func(pid int) error { _, err := freeze(pid); return err })
	})
}

// Cont lets a stopped program go on (SIGCONT).
func (p *Process) Cont() {
	p.t.Helper()
	p.control("continue", func(u *unit) error { return u.onTree("continue", thaw) })
}

// Restart starts the program again on the same port and data, and returns when
// it serves. A program that still runs is ended in order first; for a restart
// after a crash, Kill it before.
func (p *Process) Restart() {
	p.t.Helper()
	p.control("restart", func(u *unit) error { return u.restart() })
}

func (p *Process) control(verb string, do func(*unit) error) {
	p.t.Helper()
	if p.refusal != "" {
		p.t.Fatalf("services: %s: %s", verb, p.refusal)
	}
	if err := do(p.unit); err != nil {
		p.t.Fatalf("services: %v", err)
	}
}

// begin starts a unit that lives until the test ends.
func begin(t testing.TB, launch func() (*unit, error)) Process {
	t.Helper()
	began := time.Now()
	u, err := launch()
	if err != nil {
		t.Fatalf("services: %v", err)
	}
	t.Logf("%s (pid %d) ready in %v", u.name, u.pid(), time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s ends:\n%s", u.name, u.tail())
		}
		if err := u.discard(); err != nil {
			t.Errorf("services: %v", err)
		}
	})
	return Process{t: t, url: u.url, unit: u}
}

// foreign is the process of a server that the environment names.
func foreign(t testing.TB, variable, address string) Process {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		t.Fatalf("services: %s: want scheme://[user[:password]@]host:port, got %q (%v)", variable, address, err)
	}
	return Process{t: t, url: u, refusal: "the server is not ours but the one that " + variable +
		" names; the test needs a private server, and for that its program has to be installed"}
}
