package servers

import (
	"context"
	"sync/atomic"
	"time"
)

// ahead is how many writes the writer may be ahead of the slowest watcher. It
// keeps everybody's watchers from falling so far behind that events are dropped:
// what is measured is what arrives everywhere.
const ahead = 16

// fan is a writer and the watchers of what it writes, each event in order.
type fan struct {
	watchers int64
	pending  [ahead]atomic.Int64 // watchers that have not seen a write yet, by its number
	free     chan struct{}       // one for each write that may begin
	seen     atomic.Int64
}

func newFan(watchers int) *fan {
	f := &fan{watchers: int64(watchers), free: make(chan struct{}, ahead)}
	for i := range ahead {
		f.pending[i].Store(f.watchers)
		f.free <- struct{}{}
	}
	return f
}

// saw is told by a watcher about its nth event, from 0.
func (f *fan) saw(n int) {
	f.seen.Add(1)
	if p := &f.pending[n%ahead]; p.Add(-1) == 0 {
		p.Store(f.watchers)
		f.free <- struct{}{}
	}
}

// write waits until the next write may begin.
func (f *fan) write(ctx context.Context, put func() error) error {
	select {
	case <-f.free:
		return put()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// turn has one writer write as fast as everybody can watch, and counts events.
func (f *fan) turn(ctx context.Context, put func() error, spent meter) turn {
	return func(d time.Duration) (figures, error) {
		w := &window{}
		var before, after int64
		metered := func() (time.Duration, time.Duration) {
			before, after = after, f.seen.Load()
			return spent()
		}
		writer := func() error {
			defer w.counts()
			return f.write(ctx, put)
		}
		c, err := w.run([]func() error{writer}, d, metered)
		return c.figures(int(after-before), nil), err
	}
}
