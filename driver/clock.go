package driver

import (
	"sync/atomic"
	"time"
)

// Now is the clock of all deadlines on the client's side: time.Now, moved on by
// the time that the machine was suspended since the program started. Go's own
// elapsed time stands still in a suspended machine; other machines' does not.
// Under the fake time of testing/synctest it is time.Now.
func Now() time.Time {
	t := time.Now()
	return t.Add(machine.slept(t))
}

// Until is the time left to d, a time of [Now].
func Until(d time.Time) time.Duration { return d.Sub(Now()) }

// nap is the shortest sleep that is told from the time between two readings.
const nap = time.Millisecond

var machine = newSleeper(suspended)

// sleeper adds up how long the machine slept. Asking the kernel takes two
// system calls; a sleep also moves the wall clock against elapsed time, which
// costs nothing to see, so the kernel is asked only when that has moved.
type sleeper struct {
	read  func() time.Duration // since boot; grows only by sleeping
	start time.Duration
	base  time.Time
	wall  atomic.Int64 // wall clock less elapsed time, when the kernel was asked
	total atomic.Int64
}

func newSleeper(read func() time.Duration) *sleeper {
	return &sleeper{read: read, start: max(read(), read(), read()), base: time.Now()}
}

// slept is how long the machine slept until t, which is the present. It never
// shrinks.
func (s *sleeper) slept(t time.Time) time.Duration {
	wall := t.UnixNano() - int64(t.Sub(s.base))
	if moved := time.Duration(wall - s.wall.Load()); moved <= -nap || moved >= nap {
		s.ask()
		s.wall.Store(wall) // after the total, which it vouches for
	}
	return time.Duration(s.total.Load())
}

// ask takes over what the kernel says, if it is a nap longer than before.
func (s *sleeper) ask() {
	now := int64(s.read() - s.start)
	for {
		old := s.total.Load()
		if now < old+int64(nap) || s.total.CompareAndSwap(old, now) {
			return
		}
	}
}
