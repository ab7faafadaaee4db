//go:build unix

package programs_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services/programs"
)

// A debian is a machine that only remembers what was asked of it.
type debian struct {
	programs.Installer
	mu       sync.Mutex
	commands []string
	policies []string // text of the policy file at each command
	fail     string   // commands with this word fail
}

func newDebian(t *testing.T) *debian {
	d := &debian{}
	d.Installer = programs.Installer{
		Policy:  filepath.Join(t.TempDir(), "policy-rc.d"),
		Lock:    filepath.Join(t.TempDir(), "lock"),
		Run:     d.run,
		Missing: func(p programs.Program) bool { return p.Package != "postgresql" },
	}
	return d
}

var errRefused = errors.New("refused")

func (d *debian) run(_ context.Context, name string, args ...string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	policy, _ := os.ReadFile(d.Policy)
	command := name + " " + strings.Join(args, " ")
	d.commands, d.policies = append(d.commands, command), append(d.policies, string(policy))
	if d.fail != "" && strings.Contains(command, d.fail) {
		return errRefused
	}
	return nil
}

func TestInstallOnlyWhatIsMissingAndQuietIt(t *testing.T) {
	d := newDebian(t)
	if err := d.Install(t.Context(), programs.All()...); err != nil {
		t.Fatal(err)
	}
	const apt = "env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "
	want := []string{
		apt + "update",
		apt + "install -y --no-install-recommends redis-server pgbouncer python3 curl",
		"service redis-server stop", "update-rc.d redis-server disable",
		"service pgbouncer stop", "update-rc.d pgbouncer disable",
	}
	if !slices.Equal(d.commands, want) {
		t.Errorf("ran\n%s\nwant\n%s", strings.Join(d.commands, "\n"), strings.Join(want, "\n"))
	}
}

func TestInstallNothingWhenNothingIsMissing(t *testing.T) {
	d := newDebian(t)
	if err := d.Install(t.Context(), programs.PostgreSQL); err != nil || len(d.commands) != 0 {
		t.Errorf("ran %q, %v; want nothing", d.commands, err)
	}
}

func TestPolicyForbidsStartWhileInstalling(t *testing.T) {
	for name, fail := range map[string]string{"install works": "", "install fails": "install"} {
		t.Run(name, func(t *testing.T) {
			d := newDebian(t)
			d.fail = fail
			err := d.Install(t.Context(), programs.Redis)
			if errors.Is(err, errRefused) != (fail != "") {
				t.Errorf("error %v", err)
			}
			if status := runPolicy(t, d.policies[1]); status != 101 {
				t.Errorf("policy %q exits with %d, want 101", d.policies[1], status)
			}
			if _, err := os.Stat(d.Policy); !os.IsNotExist(err) {
				t.Errorf("policy file is left behind: %v", err)
			}
		})
	}
}

func runPolicy(t *testing.T, text string) int {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy")
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(file, "redis-server", "start")
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode()
}

func TestPolicyOfTheMachineStays(t *testing.T) {
	d := newDebian(t)
	const theirs = "#!/bin/sh\nexit 0\n"
	if err := os.WriteFile(d.Policy, []byte(theirs), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.Install(t.Context(), programs.Redis); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(d.Policy); string(after) != theirs || d.policies[1] != theirs {
		t.Errorf("policy %q during, %q after; want theirs untouched", d.policies[1], after)
	}
}

func TestPolicyLeftByAKilledRunIsRemoved(t *testing.T) {
	d := newDebian(t)
	if err := d.Install(t.Context(), programs.Redis); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Policy, []byte(d.policies[1]), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.Install(t.Context(), programs.Redis); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.Policy); !os.IsNotExist(err) {
		t.Errorf("old policy file stays: %v", err)
	}
}

func TestInstallationsExcludeEachOther(t *testing.T) {
	d := newDebian(t)
	var inside, installed atomic.Int32
	d.Missing = func(programs.Program) bool { return installed.Load() == 0 }
	d.Run = func(_ context.Context, name string, args ...string) error {
		defer inside.Add(-1)
		if inside.Add(1) > 1 {
			t.Error("two installations at a time")
		}
		if slices.Contains(args, "install") {
			installed.Add(1)
		}
		return nil
	}
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			if err := d.Install(t.Context(), programs.Redis); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if installed.Load() != 1 {
		t.Errorf("installed %d times, want once", installed.Load())
	}
}

func TestInstallWaitsNoLongerThanItsContext(t *testing.T) {
	d := newDebian(t)
	entered, release := make(chan struct{}, 10), make(chan struct{})
	d.Run = func(context.Context, string, ...string) error {
		entered <- struct{}{}
		<-release
		return nil
	}
	first := make(chan error)
	go func() { first <- d.Install(t.Context(), programs.Redis) }()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Install(ctx, programs.Redis); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting installation ended with %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}
