package servers

import (
	"slices"
	"sync"
	"time"
)

// A lock takes a name and returns what gives it back.
type lock func() (unlock func() error, err error)

// pair is taking it and giving it back.
func pair(l lock) func() error {
	return func() error {
		unlock, err := l()
		if err != nil {
			return err
		}
		return unlock()
	}
}

// relay follows a lock as it goes from one caller to another.
type relay struct {
	mu     sync.Mutex
	last   int       // the caller that had it last
	left   time.Time // when that one began to give it back
	took   []time.Duration
	served []int
}

func newRelay(callers int) *relay { return &relay{last: -1, served: make([]int, callers)} }

// taken is told by the caller that has the lock now, at a time at which it counts or not.
func (r *relay) taken(who int, now time.Time, counts bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if counts {
		r.served[who]++
		if r.last >= 0 && r.last != who {
			r.took = append(r.took, now.Sub(r.left))
		}
	}
	r.last = who
}

// leaves is told before the lock is given back.
func (r *relay) leaves(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = now
}

// uneven is how often the one served most was, less the one served least.
func (r *relay) uneven() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return float64(slices.Max(r.served) - slices.Min(r.served))
}

// handOver counts changes of the holder, and how long each took: from the call
// that gives it back to the return of the one that takes it.
func handOver(locks []lock, spent meter) turn {
	return func(d time.Duration) (figures, error) {
		w, r := &window{}, newRelay(len(locks))
		callers := make([]func() error, len(locks))
		for i, l := range locks {
			callers[i] = func() error {
				unlock, err := l()
				if err != nil {
					return err
				}
				r.taken(i, time.Now(), w.counts())
				r.leaves(time.Now())
				return unlock()
			}
		}
		c, err := w.run(callers, d, spent)
		f := c.figures(len(r.took), r.took)
		f.uneven = r.uneven()
		return f, err
	}
}
