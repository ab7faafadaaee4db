package server

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// writer uses the disk, one job at a time and in order, on a goroutine of its own
// or, if there is nothing else to do, on that of the caller. Writes that wait while
// one is being synced share the next sync.
type writer struct {
	disk *disk.Disk
	done func(disk.Job, error) // called after each job of writes, on the goroutine that did it

	mu     sync.Mutex
	cond   sync.Cond
	queue  disk.Queue
	busy   bool // somebody uses the disk
	direct bool // and it is the loop, which may not wait
	waits  bool // for room on the disk, and everything behind it
	closed bool
	ended  chan struct{}
}

func newWriter(d *disk.Disk, done func(disk.Job, error)) *writer {
	w := &writer{disk: d, done: done, ended: make(chan struct{})}
	w.cond.L = &w.mu
	d.Wait = w.await
	go w.loop()
	return w
}

func (w *writer) add(j disk.Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		if j.Then != nil {
			go j.Then(errStopped)
		}
		return
	}
	w.queue.Add(j)
	w.cond.Signal()
}

// next waits for a job, after which the disk is the writer's until it asks for the
// next; false: there will be none.
func (w *writer) next() (disk.Job, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.busy || w.queue.Len() == 0 && !w.closed {
		w.cond.Wait()
	}
	if w.queue.Len() == 0 {
		return disk.Job{}, false
	}
	w.busy = true
	return w.queue.Next(), true
}

// free gives the disk up.
func (w *writer) free() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy, w.direct, w.waits = false, false, false
	if w.queue.Len() > 0 || w.closed {
		w.cond.Signal()
	}
}

// noRoomFor is how long a write waits for room on the disk before it looks again, and a backup before it looks
// whether one does.
const noRoomFor = 100 * time.Millisecond

// await waits for room on the disk; false: there is no time for that.
func (w *writer) await() bool {
	if w.hurried() {
		return false
	}
	time.Sleep(noRoomFor)
	w.disk.Probe()
	return !w.hurried()
}

// hurried reports that nothing may wait for room; else it notes that something does.
func (w *writer) hurried() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = !w.closed && !w.direct
	return !w.waits
}

// full reports that the log waits for room: what is asked of the disk now would wait, too.
func (w *writer) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waits
}

// now does a job on the caller's goroutine, which spares two changes of goroutine
// and as many system calls; false: the disk is at work, or may have to wait for room, and
// nothing is done that must not be done again.
func (w *writer) now(writes []replica.Write) bool {
	if slices.ContainsFunc(writes, func(x replica.Write) bool { return x.Install != nil }) {
		return false
	}
	w.mu.Lock()
	idle := !w.busy && !w.closed && w.queue.Len() == 0
	w.busy, w.direct = w.busy || idle, idle
	w.mu.Unlock()
	if !idle {
		return false
	}
	err := w.disk.Write(writes)
	w.free()
	if errors.Is(err, storage.ErrNoRoom) {
		return false
	}
	w.done(disk.Job{Writes: writes}, err)
	return true
}

func (w *writer) loop() {
	defer close(w.ended)
	for {
		j, ok := w.next()
		if !ok {
			return
		}
		w.work(j)
	}
}

func (w *writer) work(j disk.Job) {
	err := j.Do(w.disk)
	w.free()
	if j.Run != nil {
		j.Then(err)
		return
	}
	w.done(j, err)
}

// do runs f on the writer's goroutine and waits for it.
func (w *writer) do(f func(*disk.Disk) error) error { return <-w.ask(f) }

// ask has f run on the writer's goroutine, which then tells how it went.
func (w *writer) ask(f func(*disk.Disk) error) <-chan error {
	done := make(chan error, 1)
	w.add(disk.Job{Run: f, Then: func(err error) { done <- err }})
	return done
}

// close does what is queued, then ends. Nothing waits for room any more: it fails.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.cond.Signal()
	w.mu.Unlock()
	<-w.ended
}
