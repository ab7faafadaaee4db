//go:build unix

package services

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	readyPoll  = 2 * time.Millisecond
	readyLimit = 60 * time.Second
	quitLimit  = 10 * time.Second
	logTail    = 4 << 10 // bytes of a server's log shown in an error
)

// A unit is one server program that can be started again and again with the
// same command in the same directory.
type unit struct {
	name    string // in messages
	place   *site  // the directory of its data and log, and its port
	url     *url.URL
	command func() *exec.Cmd // a fresh command for each start
	ready   func(pid int) error
	quit    syscall.Signal // asks for an orderly end
	drop    syscall.Signal // ends it when its data is not needed any more
	leave   func()         // frees what lies outside its directory; may be nil

	mu     sync.Mutex // one operation at a time
	cmd    *exec.Cmd  // nil before the first start
	exited chan struct{}
}

func (u *unit) logPath() string { return filepath.Join(u.place.dir, "log") }

// start runs the program for the first time. When that fails, nothing is left
// of the unit.
func (u *unit) start() (*unit, error) {
	u.mu.Lock()
	err := u.startLocked()
	u.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, u.discard())
	}
	return u, nil
}

// startLocked returns when the program is ready to serve. On error nothing is
// left running.
func (u *unit) startLocked() error {
	log, err := os.OpenFile(u.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", u.name, err)
	}
	defer log.Close()
	cmd := u.command()
	cmd.Dir, cmd.Stdout, cmd.Stderr = u.place.dir, log, log
	exited, err := spawn(cmd)
	if err != nil {
		return fmt.Errorf("start %s: %w", u.name, err)
	}
	u.cmd, u.exited = cmd, exited
	if err := u.awaitReady(); err != nil {
		err = fmt.Errorf("start %s: %w; its log ends:\n%s", u.name, err, u.tail())
		return errors.Join(err, u.killLocked())
	}
	return nil
}

// spawn starts cmd on a thread that lives as long as the process, because the
// kernel ends the process with the thread, and reaps it.
func spawn(cmd *exec.Cmd) (exited chan struct{}, err error) {
	exited = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(exited)
		}
	}()
	return exited, <-started
}

func (u *unit) awaitReady() error {
	deadline := time.Now().Add(readyLimit)
	for {
		err := u.ready(u.cmd.Process.Pid)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %v: %w", readyLimit, err)
		}
		select {
		case <-u.exited:
			return fmt.Errorf("it ended at once: %v", u.cmd.ProcessState)
		case <-time.After(readyPoll):
		}
	}
}

// pid is 0 when the program does not run.
func (u *unit) pid() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.pidLocked()
}

func (u *unit) pidLocked() int {
	if u.cmd == nil {
		return 0
	}
	select {
	case <-u.exited:
		return 0
	default:
		return u.cmd.Process.Pid
	}
}

func (u *unit) kill() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.killLocked()
}

func (u *unit) killLocked() error {
	pid := u.pidLocked()
	if pid == 0 {
		return nil
	}
	if err := slay(pid); err != nil && u.pidLocked() != 0 {
		return fmt.Errorf("kill %s (pid %d): %w", u.name, pid, err)
	}
	<-u.exited
	return nil
}

// onTree applies change to the running program's process tree.
func (u *unit) onTree(verb string, change func(pid int) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	pid := u.pidLocked()
	if pid == 0 {
		return fmt.Errorf("%s %s: it is not running; Restart it first", verb, u.name)
	}
	if err := change(pid); err != nil {
		return fmt.Errorf("%s %s (pid %d): %w", verb, u.name, pid, err)
	}
	return nil
}

// restart ends the program in order when it runs, and starts it again.
func (u *unit) restart() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.endLocked(u.quit); err != nil {
		return err
	}
	return u.startLocked()
}

// discard ends the program for good and gives up its place.
func (u *unit) discard() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	err := u.endLocked(u.drop)
	if u.leave != nil {
		u.leave()
	}
	return errors.Join(err, u.place.close())
}

// endLocked asks with a signal, and kills what does not obey.
func (u *unit) endLocked(ask syscall.Signal) error {
	pid := u.pidLocked()
	if pid == 0 || ask == syscall.SIGKILL {
		return u.killLocked()
	}
	if err := thaw(pid); err != nil {
		return fmt.Errorf("end %s (pid %d): %w", u.name, pid, err)
	}
	_ = u.cmd.Process.Signal(ask) // fails only when it has just ended
	select {
	case <-u.exited:
		return nil
	case <-time.After(quitLimit):
		return u.killLocked()
	}
}

// tail is the end of the program's log.
func (u *unit) tail() string {
	log, err := os.ReadFile(u.logPath())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-logTail):])
}
