package server

import (
	"sync"

	"github.com/holdfast-io/holdfast/server/disk"
	"github.com/holdfast-io/holdfast/server/replica"
)

// writer is the one goroutine that uses the disk. Jobs are done in order; writes
// that wait while one is being synced share the next sync.
type writer struct {
	disk *disk.Disk
	done func(job, error) // called after each job, on the writer's goroutine

	mu     sync.Mutex
	cond   sync.Cond
	queue  []job
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

// next waits for a job; false: there will be none.
func (w *writer) next() (job, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 && !w.closed {
		w.cond.Wait()
	}
	if len(w.queue) == 0 {
		return job{}, false
	}
	j := w.queue[0]
	w.queue = w.queue[1:]
	return j, true
}

func (w *writer) loop() {
	defer close(w.ended)
	for {
		j, ok := w.next()
		if !ok {
			return
		}
		var err error
		if j.run != nil {
			err = j.run(w.disk)
			j.then(err)
			continue
		}
		err = w.disk.Write(j.writes)
		w.done(j, err)
	}
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
