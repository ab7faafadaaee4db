package server

import (
	"sync"

	"github.com/holdfast-io/holdfast/server/disk"
	"github.com/holdfast-io/holdfast/server/replica"
)

// writer uses the disk, one job at a time and in order, on a goroutine of its own
// or, if there is nothing else to do, on that of who asks. Writes that wait while
// one is being synced share the next sync.
type writer struct {
	disk *disk.Disk
	done func(job, error) // called after each job, by who did it

	mu     sync.Mutex
	cond   sync.Cond
	queue  []job
	busy   bool // somebody uses the disk
	closed bool
	ended  chan struct{}
}

// job is something to do with the disk: writes of the node, or anything else.
type job struct {
	writes []replica.Write
	run    func(*disk.Disk) error
	then   func(error) // for run: told how it went, on the writer's goroutine
}

func newWriter(d *disk.Disk, done func(job, error)) *writer {
	w := &writer{disk: d, done: done, ended: make(chan struct{})}
	w.cond.L = &w.mu
	go w.loop()
	return w
}

func (w *writer) add(j job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		if j.then != nil {
			go j.then(errStopped)
		}
		return
	}
	if n := len(w.queue); n > 0 && j.run == nil && w.queue[n-1].run == nil {
		w.queue[n-1].writes = append(w.queue[n-1].writes, j.writes...)
		return
	}
	w.queue = append(w.queue, j)
	w.cond.Signal()
}

// next waits for a job, after which the disk is the writer's until it asks for the
// next; false: there will be none.
func (w *writer) next() (job, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.busy || len(w.queue) == 0 && !w.closed {
		w.cond.Wait()
	}
	if len(w.queue) == 0 {
		return job{}, false
	}
	j := w.queue[0]
	w.queue = w.queue[1:]
	w.busy = true
	return j, true
}

// free gives the disk up.
func (w *writer) free() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
	if len(w.queue) > 0 || w.closed {
		w.cond.Signal()
	}
}

// now does a job on the caller's goroutine, which spares two changes of goroutine
// and as many system calls; false: the disk is at work.
func (w *writer) now(writes []replica.Write) bool {
	w.mu.Lock()
	idle := !w.busy && !w.closed && len(w.queue) == 0
	w.busy = w.busy || idle
	w.mu.Unlock()
	if !idle {
		return false
	}
	err := w.disk.Write(writes)
	w.free()
	w.done(job{writes: writes}, err)
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

func (w *writer) work(j job) {
	if j.run != nil {
		err := j.run(w.disk)
		w.free()
		j.then(err)
		return
	}
	err := w.disk.Write(j.writes)
	w.free()
	w.done(j, err)
}

// do runs f on the writer's goroutine and waits for it.
func (w *writer) do(f func(*disk.Disk) error) error {
	done := make(chan error, 1)
	w.add(job{run: f, then: func(err error) { done <- err }})
	return <-done
}

// close does what is queued, then ends.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.cond.Signal()
	w.mu.Unlock()
	<-w.ended
}
