//go:build unix

package services

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	treePoll  = time.Millisecond
	treeLimit = 10 * time.Second
)

// A process is one row of the machine's process table.
type process struct {
	pid, parent int
	dir         string // working directory, "" when unknown
	dead        bool   // ended, not yet reaped
	frozen      bool   // every thread is stopped
}

// tree returns the process root and all its living descendants. PostgreSQL's
// backends leave the process group, so only parentage finds them.
func tree(root int) ([]process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	in := map[int]bool{root: true}
	for size := 0; size != len(in); {
		size = len(in)
		for _, p := range all {
			if in[p.parent] {
				in[p.pid] = true
			}
		}
	}
	return slices.DeleteFunc(all, func(p process) bool { return !in[p.pid] || p.dead }), nil
}

// below returns the running processes with their working directory in dir or below.
func below(dir string) ([]process, error) {
	all, err := processes()
	return slices.DeleteFunc(all, func(p process) bool {
		return p.dead || p.dir != dir && !strings.HasPrefix(p.dir, dir+"/")
	}), err
}

// freeze returns when every thread of the tree is stopped, so that nothing of
// it can answer, or fork, any more.
func freeze(root int) ([]process, error) {
	deadline := time.Now().Add(treeLimit)
	for {
		all, err := tree(root)
		if err != nil || len(all) == 0 {
			return nil, errors.Join(err, noProcess(all))
		}
		if !slices.ContainsFunc(all, func(p process) bool { return !p.frozen }) {
			return all, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("not all of %d processes stopped within %v", len(all), treeLimit)
		}
		signalAll(all, syscall.SIGSTOP)
		time.Sleep(treePoll)
	}
}

func noProcess(all []process) error {
	if len(all) == 0 {
		return errors.New("no such process")
	}
	return nil
}

// thaw lets the whole tree go on.
func thaw(root int) error {
	all, err := tree(root)
	signalAll(all, syscall.SIGCONT)
	return err
}

// slay kills the tree as a crash of the machine would: first nothing moves,
// then everything has ended. It returns when all descendants are gone; the root
// is for its parent to reap.
func slay(root int) error {
	all, err := freeze(root)
	if err != nil {
		return err
	}
	signalAll(all, syscall.SIGKILL)
	return awaitGone(slices.DeleteFunc(all, func(p process) bool { return p.pid == root }))
}

func awaitGone(doomed []process) error {
	deadline := time.Now().Add(treeLimit)
	for {
		all, err := processes()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(p process) bool { return !p.dead && hasPid(doomed, p.pid) }) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("some of %d killed processes still live after %v", len(doomed), treeLimit)
		}
		time.Sleep(treePoll)
	}
}

func hasPid(all []process, pid int) bool {
	return slices.ContainsFunc(all, func(p process) bool { return p.pid == pid })
}

// signalAll ignores failures: a process that just ended needs no signal, and
// the caller looks at the table again.
func signalAll(all []process, s syscall.Signal) {
	for _, p := range all {
		_ = syscall.Kill(p.pid, s)
	}
}
