//go:build unix

package services

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// scratch is the one directory of this process below which all servers live.
// It exists from the first path to the last drop, watched by a guard process
// that removes it, and kills whatever still runs in it, when this process drops
// it or dies.
var scratch struct {
	mu    sync.Mutex
	users int
	dir   string
	guard *exec.Cmd
	alive io.Closer // the guard acts when this end of its pipe closes
}

// holdScratch keeps the directory, once it exists, until dropScratch.
func holdScratch() {
	scratch.mu.Lock()
	defer scratch.mu.Unlock()
	scratch.users++
}

// scratchDir returns the directory, for callers between hold and drop.
func scratchDir() (string, error) {
	scratch.mu.Lock()
	defer scratch.mu.Unlock()
	if scratch.dir != "" {
		return scratch.dir, nil
	}
	dir, err := os.MkdirTemp("", "holdfast-services-")
	if err != nil {
		return "", err
	}
	// Servers of another user must be able to reach their directories in it.
	if err := errors.Join(os.Chmod(dir, 0o711), startGuard(dir)); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	scratch.dir = dir
	return dir, nil
}

func startGuard(dir string) error {
	stdin, alive, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	guard := reexec(guardRole, dir)
	guard.Dir, guard.Stdin = "/", stdin
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := guard.Start(); err != nil {
		return errors.Join(fmt.Errorf("start guard: %w", err), alive.Close())
	}
	scratch.guard, scratch.alive = guard, alive
	return nil
}

// dropScratch undoes one holdScratch. The last one removes the directory, and
// fails when a process was still running in it.
func dropScratch() error {
	scratch.mu.Lock()
	defer scratch.mu.Unlock()
	scratch.users--
	if scratch.users > 0 || scratch.dir == "" {
		return nil
	}
	dir := scratch.dir
	scratch.dir = ""
	closed := scratch.alive.Close()
	if err := errors.Join(closed, scratch.guard.Wait()); err != nil {
		return fmt.Errorf("clean up %s: %w (status %d means that servers were left running)", dir, err, straysStatus)
	}
	return nil
}

const straysStatus = 3

// guardMain waits until the process that started it closes the pipe or dies,
// then kills what runs below dir and removes it.
func guardMain(dir string) int {
	_, _ = io.Copy(io.Discard, os.Stdin)
	status := 0
	for {
		strays, err := below(dir)
		if err != nil {
			return 1
		}
		if len(strays) == 0 {
			break
		}
		status = straysStatus
		signalAll(strays, syscall.SIGKILL)
		if awaitGone(strays) != nil {
			return 1
		}
	}
	clusters, _ := filepath.Glob(filepath.Join(dir, "*", clusterName))
	for _, cluster := range clusters {
		freeSharedMemory(cluster)
	}
	if os.RemoveAll(dir) != nil {
		return 1
	}
	return status
}
