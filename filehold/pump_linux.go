package filehold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/filelog"
)

// bellName is the file that is written to wake every process that sleeps.
const bellName = "bell"

// ring wakes the processes that wait for something in the log. It comes after
// the log's new end is there for everybody: a reader that looks then and goes to sleep
// has said so before, and is woken.
func (e *engine) ring() {
	if e.ctl.load(wSleepers) > uint64(e.sleeping()) {
		_, _ = e.bell.WriteAt([]byte{1}, 0)
	}
}

// concernsAll reports whether what was just written is worth waking every
// process: somebody watches, or a process came or went. All else they read when
// they need it. If the writer is killed before it rings, the end of its pipe
// does it.
func (e *engine) concernsAll() bool {
	return e.ctl.load(wWatchers) > uint64(min(len(e.readers), 1)) ||
		slices.ContainsFunc(e.out.Events, func(ev core.Event) bool { return ev.Kind == core.EventSession })
}

// ringGranted wakes the processes with claims that were decided by what was just
// written. One that has no bell has not gone to sleep yet.
func (e *engine) ringGranted() {
	woken := e.proc
	for i := range e.out.Pushes {
		p := procOf(e.out.Pushes[i].Session)
		if p == e.proc || p == woken {
			continue
		}
		woken = p
		if f, err := os.OpenFile(e.liveFile(p, bellExt), os.O_WRONLY|syscall.O_NOFOLLOW, 0); err == nil {
			_, _ = f.WriteAt([]byte{1}, 0)
			_ = f.Close()
		}
	}
}

// sleeping is how often this process is counted among the sleepers.
func (e *engine) sleeping() int { return min(e.sleeper, 1) }

// pump reads the log while somebody here waits for what others write, and
// notices when a process ends on which he may wait. It is started by the first
// waiter, and stays: ending a watch of the kernel's takes milliseconds.
type pump struct {
	e     *engine
	bell  *os.File // inotify
	rings chan struct{}
	life  context.Context
	stop  context.CancelFunc
	work  sync.WaitGroup
	pipes map[procID]*os.File // of others; guarded by e.mu
	armed int64               // cluster time of the next look; guarded by e.mu
}

// sleep is called before a wait, and awake after it. What was written
// before is applied when it returns, or by the pump if that takes the store's
// lock, and what comes then rings. e.mu is held.
func (e *engine) sleep() error {
	if e.pump == nil {
		p, err := e.newPump()
		if err != nil {
			return err
		}
		e.pump = p
		p.work.Go(p.run)
		p.work.Go(p.listen)
		for id := range e.procs {
			e.met(id)
		}
	}
	if e.sleeper++; e.sleeper == 1 {
		e.ctl.add(wSleepers, 1)
		e.pump.nudge()
	}
	err := e.log.CatchUp()
	if err == filelog.ErrBehind {
		e.pump.nudge()
		return nil
	}
	if err != nil {
		e.rise()
	}
	return err
}

// awake ends a sleep.
func (e *engine) awake() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rise()
}

func (e *engine) rise() {
	if e.sleeper--; e.sleeper == 0 {
		e.ctl.add(wSleepers, -1)
	}
}

func (e *engine) newPump() (*pump, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch %s: no inotify instance (%w): raise fs.inotify.max_user_instances, or how many files the process may have open", e.dir, err)
	}
	fd = e.lower(fd)
	f := os.NewFile(uintptr(fd), "inotify")
	own := e.liveFile(e.proc, bellExt)
	err = makeFile(own, e.perm)
	for _, bell := range []string{e.bell.Name(), own} {
		if err == nil {
			err = hearBell(fd, bell)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	p := &pump{e: e, bell: f, rings: make(chan struct{}, 1), pipes: map[procID]*os.File{}}
	p.life, p.stop = context.WithCancel(context.Background())
	return p, nil
}

// hearBell has the kernel tell when a bell is written.
func hearBell(fd int, bell string) error {
	if _, err := syscall.InotifyAddWatch(fd, bell, syscall.IN_MODIFY); err != nil {
		return fmt.Errorf("watch %s: %w: if there are too many watches, raise fs.inotify.max_user_watches", bell, err)
	}
	return nil
}

// lower moves a file to the low place that was kept for it, if it is free.
func (e *engine) lower(fd int) int {
	if e.low < 0 || syscall.Dup3(fd, e.low, syscall.O_CLOEXEC) != nil {
		return fd
	}
	_ = syscall.Close(fd)
	fd, e.low = e.low, -1
	return fd
}

// endPump stops the pump and waits until it has stopped.
func (e *engine) endPump() {
	e.mu.Lock()
	p := e.pump
	e.pump = nil
	if p != nil {
		for _, f := range p.pipes {
			_ = f.Close()
		}
	}
	e.mu.Unlock()
	if p == nil {
		return
	}
	p.stop()
	_ = p.bell.Close()
	p.work.Wait()
}

// listen turns the bell into rings.
func (p *pump) listen() {
	buf := make([]byte, 4096)
	for {
		if _, err := p.bell.Read(buf); err != nil {
			return
		}
		p.nudge()
	}
}

func (p *pump) nudge() {
	select {
	case p.rings <- struct{}{}:
	default:
	}
}

// run reads the log at each ring, when something is due, and now and then.
func (p *pump) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.life.Done():
			return
		case <-p.rings:
		case <-timer.C:
		}
		if err := p.e.look(p.life, func() {}); err != nil && p.life.Err() == nil {
			p.e.failed("read", err)
		}
		_ = p.e.endIfGone()
		timer.Reset(p.nextLook())
	}
}

// nextLook is how long nothing is due here.
func (p *pump) nextLook() time.Duration {
	e := p.e
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	p.armed = now + int64(e.fallback)
	if at, ok := e.m.Due(); ok && e.sleeper > 0 {
		p.armed = min(p.armed, max(at, now))
	}
	return time.Duration(p.armed - now)
}

// rearm has the pump look earlier if something is due before it would. e.mu is
// held.
func (e *engine) rearm() {
	if e.pump == nil || e.sleeper == 0 {
		return
	}
	if at, ok := e.m.Due(); ok && at < e.pump.armed {
		e.pump.nudge()
	}
}

// met begins to watch over a process of which there are sessions. e.mu is held.
func (e *engine) met(id procID) {
	if e.pump == nil || id == e.proc || e.pump.pipes[id] != nil {
		return
	}
	f, err := e.openPipe(id)
	if err != nil {
		return
	}
	e.pump.pipes[id] = f
	p := e.pump
	p.work.Go(func() { p.watchOver(id, f) })
}

// watchOver ends the sessions of a process when its pipe comes to its end.
func (p *pump) watchOver(id procID, f *os.File) {
	n, err := f.Read(make([]byte, 1))
	if n > 0 || errors.Is(err, os.ErrClosed) {
		return
	}
	defer f.Close()
	p.e.mu.Lock()
	if p.pipes[id] == f {
		delete(p.pipes, id)
	}
	p.e.mu.Unlock()
	if !p.first(f) {
		return
	}
	if err := p.e.reap(p.life, id); err != nil && p.life.Err() == nil {
		p.e.failed("clean up after a process", err)
	}
}

// first has one of all that see a process end clear up after it, while the others leave
// the processor to the waiters: the one that gets the pipe's lock. The others look
// again when it should long be done. False: the pump ends.
func (p *pump) first(pipe *os.File) bool {
	if !busy(flock(int(pipe.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)) {
		return true
	}
	select {
	case <-time.After(clearUp):
		return true
	case <-p.life.Done():
		return false
	}
}

// clearUp is how long it may take to clear up after a process.
const clearUp = 100 * time.Millisecond
