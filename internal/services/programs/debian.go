//go:build unix

package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// policyText is the file which tells Debian's maintainer scripts not to start
// what they install. Its second line is how a later run recognises a file
// left behind by one that was killed.
const policyText = "#!/bin/sh\n# Temporary: installing programs for the Holdfast tests.\nexit 101\n"

// An Installer adds Debian packages to the machine. Its fields are where it
// touches the machine.
type Installer struct {
	// Policy is the file Debian's maintainer scripts ask before they start a
	// service. It is written for the time of the installation when there is
	// none; one that is there already is left alone.
	Policy string
	// Lock is a file locked while installing, so that test binaries running
	// side by side do not install at the same time.
	Lock string
	// Run executes one command to its end. Its error carries the output.
	Run func(ctx context.Context, name string, args ...string) error
	// Missing reports whether a program still has to be installed. It is
	// asked again once the lock is held.
	Missing func(Program) bool
}

// Debian returns the Installer for this machine.
func Debian() Installer {
	return Installer{
		Policy:  "/usr/sbin/policy-rc.d",
		Lock:    filepath.Join(os.TempDir(), "holdfast-apt.lock"),
		Run:     run,
		Missing: func(p Program) bool { _, err := p.Find(); return err != nil },
	}
}

// CanInstall reports whether this process may install Debian packages: it runs
// as root and apt-get exists.
func CanInstall() bool {
	_, err := exec.LookPath("apt-get")
	return err == nil && os.Geteuid() == 0
}

// Install installs the packages of those programs that are missing. The
// services of the packages it added are neither running nor enabled when it
// returns; services that were on the machine before are never touched.
func (i Installer) Install(ctx context.Context, programs ...Program) error {
	unlock, err := lock(ctx, i.Lock)
	if err != nil {
		return fmt.Errorf("install: lock %s: %w", i.Lock, err)
	}
	defer unlock()
	var packages, services []string
	for _, p := range programs {
		if !i.Missing(p) {
			continue
		}
		packages = append(packages, p.Package)
		if !p.Tool {
			services = append(services, p.Package)
		}
	}
	if len(packages) == 0 {
		return nil
	}
	if err := i.add(ctx, packages, services); err != nil {
		return fmt.Errorf("install %s: %w", strings.Join(packages, " "), err)
	}
	return nil
}

func (i Installer) add(ctx context.Context, packages, services []string) error {
	if err := i.apt(ctx, "update"); err != nil {
		return err
	}
	allow, err := i.forbidStart()
	if err != nil {
		return err
	}
	args := slices.Concat([]string{"install", "-y", "--no-install-recommends"}, packages)
	if err := errors.Join(i.apt(ctx, args...), allow()); err != nil {
		return err
	}
	return i.quiet(ctx, services)
}

func (i Installer) apt(ctx context.Context, args ...string) error {
	const wait = "DPkg::Lock::Timeout=300" // seconds another apt may take
	env := []string{"DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", wait}
	return i.Run(ctx, "env", append(env, args...)...)
}

// forbidStart keeps the packages from starting their services until allow.
func (i Installer) forbidStart() (allow func() error, err error) {
	old, err := os.ReadFile(i.Policy)
	if err == nil && string(old) != policyText {
		return func() error { return nil }, nil
	}
	if err := os.WriteFile(i.Policy, []byte(policyText), 0o755); err != nil {
		return nil, err
	}
	return func() error { return os.Remove(i.Policy) }, nil
}

// quiet stops what a package started in spite of the policy, and keeps it from
// starting at the next boot.
func (i Installer) quiet(ctx context.Context, services []string) error {
	var failed []error
	for _, s := range services {
		failed = append(failed, i.Run(ctx, "service", s, "stop"), i.Run(ctx, "update-rc.d", s, "disable"))
	}
	return errors.Join(failed...)
}

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
