package holdfast

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// BufferedCounter counts in the process and tells the backend now and then:
// Add costs nanoseconds, and what was not flushed is lost in a crash. That loss
// is bounded: what was added since the last flush that succeeded, which is less
// than the threshold plus what is added while a flush is on its way, and at most
// an interval old. A flush that fails puts its amount back.
//
// A flush with an unknown outcome is repeated under the same id, which backends
// count once as long as they remember it: files always; PostgreSQL and Redis for ten
// minutes; memory and a Holdfast server as long as the session lives that carried
// it, so for outages of less than 30 seconds; NATS until 64 others have flushed the
// same counter. After that the one amount may be counted twice.
type BufferedCounter[N int64 | uint64] struct {
	c         counting
	threshold uint64
	interval  time.Duration
	turn      chan struct{} // one flush at a time

	mu       sync.Mutex
	pending  N
	sent     flush[N] // asked for, not answered for sure
	timer    *time.Timer
	waiting  bool // the timer runs
	flushing bool // in the background; it looks again when it is done
	failed   bool // the last one in the background: the next waits for the interval
	closed   bool
}

// flush is an amount on its way, under the id that makes a repetition the same.
type flush[N int64 | uint64] struct {
	id     [16]byte
	amount N
	unsure bool // it was sent before, and perhaps counted
}

// Buffered counts in the process and flushes when threshold is reached (as an
// absolute amount; at least 1) and no later than interval (1 millisecond to 100
// years) after the first Add that is not flushed; what is out of range is ErrInvalid
// by every Add. Close it to flush the rest.
func (c *Counter) Buffered(threshold int64, interval time.Duration) *BufferedCounter[int64] {
	return buffered[int64](c.c, uint64(max(threshold, 0)), interval)
}

// Buffered is [Counter.Buffered] for amounts that only grow.
func (c *UnsignedCounter) Buffered(threshold uint64, interval time.Duration) *BufferedCounter[uint64] {
	return buffered[uint64](c.c, threshold, interval)
}

func buffered[N int64 | uint64](c counting, threshold uint64, interval time.Duration) *BufferedCounter[N] {
	b := &BufferedCounter[N]{c: c, threshold: threshold, interval: interval, turn: make(chan struct{}, 1)}
	if threshold < 1 {
		b.c.err = firstError(b.c.err, invalid("the threshold is below 1"))
	}
	b.c.err = firstError(b.c.err, checkDuration("interval", interval), b.c.s.r.lacks(driver.FeatureCounter))
	return b
}

// Add counts delta in the process. It fails, and counts nothing, only after
// Close, with wrong settings, or if the amount that waits for an unreachable
// backend would not fit any more (ErrExhausted).
func (b *BufferedCounter[N]) Add(delta N) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum, fits := plus(b.pending, delta)
	switch {
	case b.c.err != nil:
		return wrap("add", b.c.name, b.c.err)
	case b.closed:
		return wrap("add", b.c.name, errClosed)
	case delta == 0:
		return nil
	case !fits:
		return driver.Errorf("add", b.c.name, ErrExhausted, "the amount not yet flushed would overflow; Flush tells why it cannot be")
	}
	b.pending = sum
	b.schedule()
	return nil
}

// plus adds without wrapping; false: the sum does not fit.
func plus[N int64 | uint64](a, b N) (N, bool) {
	sum := a + b
	return sum, (sum >= a) == (b >= 0)
}

// magnitude is the absolute amount.
func magnitude[N int64 | uint64](n N) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// schedule has a flush done when it is due; b.mu is held.
func (b *BufferedCounter[N]) schedule() {
	full := !b.failed && magnitude(b.pending) >= b.threshold
	switch {
	case b.flushing || b.waiting && !full:
	case full:
		b.flushing = true
		b.wake(0)
	default:
		b.wake(b.interval)
	}
}

// wake sets the timer; b.mu is held.
func (b *BufferedCounter[N]) wake(in time.Duration) {
	b.waiting = true
	if b.timer == nil {
		b.timer = time.AfterFunc(in, b.due)
		return
	}
	b.timer.Reset(in)
}

// due flushes in the background. A failure is told to Hooks.Fault and tried
// again an interval later.
func (b *BufferedCounter[N]) due() {
	b.mu.Lock()
	b.flushing = true
	b.mu.Unlock()
	b.c.s.r.spawn(func() {
		ctx, cancel := context.WithTimeout(b.c.s.r.life, patience)
		defer cancel()
		_, err := b.Flush(ctx)
		b.flushed(err)
		if err != nil {
			b.c.s.r.fault("flush", b.c.name, err)
		}
	})
}

// flushed sets the timer anew if something is left. To a backend that is closed nothing is told until there is
// more to tell.
func (b *BufferedCounter[N]) flushed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flushing, b.waiting, b.failed = false, false, err != nil
	switch {
	case b.closed || errors.Is(err, ErrClosed):
	case err != nil:
		b.wake(b.interval)
	case b.pending != 0:
		b.schedule()
	}
}

// Flush tells the backend what was counted so far and returns the counter's
// value then.
func (b *BufferedCounter[N]) Flush(ctx context.Context) (N, error) {
	if b.c.err != nil {
		return 0, wrap("flush", b.c.name, b.c.err)
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return 0, b.late(wrap("flush", b.c.name, b.c.s.r.ready(ctx, "")))
	}
	if b.inDoubt() {
		if v, err := b.send(ctx); err != nil {
			return v, err
		}
	}
	b.take()
	return b.send(ctx)
}

// inDoubt reports that an earlier flush was not answered. It is repeated as it
// was, before anything is added to it.
func (b *BufferedCounter[N]) inDoubt() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent.amount != 0
}

// take makes what is counted the next flush; the caller has the turn.
func (b *BufferedCounter[N]) take() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending != 0 {
		b.sent, b.pending = flush[N]{id: newID(), amount: b.pending}, 0
	}
}

// send sends what was taken; if that is nothing, it only asks for the value.
func (b *BufferedCounter[N]) send(ctx context.Context) (N, error) {
	b.mu.Lock()
	f := b.sent
	b.mu.Unlock()
	r := &driver.CountRequest{Op: driver.CountLoad}
	if f.amount != 0 {
		r = &driver.CountRequest{ID: f.id, Op: driver.CountAdd, A: uint64(f.amount)}
	}
	reply, err := b.c.do(ctx, "flush", r)
	return N(reply.Value), b.settle(err)
}

// settle forgets what was counted and puts back what surely was not; what is in
// doubt stays. A repetition that was not done says nothing about what it repeats.
func (b *BufferedCounter[N]) settle(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.sent, b.failed = flush[N]{}, false
		return nil
	}
	if b.sent.unsure {
		return unsure(err)
	}
	if sum, fits := plus(b.pending, b.sent.amount); fits && NotDone(err) {
		b.pending, b.sent = sum, flush[N]{}
	}
	b.sent.unsure = b.sent.amount != 0 && !NotDone(err)
	return err
}

// late is the error of a flush that did not get its turn.
func (b *BufferedCounter[N]) late(err error) error {
	if b.inDoubt() {
		return unsure(err)
	}
	return err
}

// unsure is an error of a repetition: what it repeats may have been done.
func unsure(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Outcome != driver.NotDone {
		return err
	}
	told := *e
	told.Outcome = driver.Unknown
	return &told
}

// LoadExact flushes and returns the value, with everything counted here.
func (b *BufferedCounter[N]) LoadExact(ctx context.Context) (N, error) { return b.Flush(ctx) }

// LoadApprox returns the backend's value plus what was counted here and not
// flushed. It may count twice what is on its way.
func (b *BufferedCounter[N]) LoadApprox(ctx context.Context) (N, error) {
	reply, err := b.c.do(ctx, "load", &driver.CountRequest{Op: driver.CountLoad})
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return clamp(clamp(N(reply.Value), b.pending), b.sent.amount), nil
}

// clamp adds, stopping at the end of the range as counters do.
func clamp[N int64 | uint64](a, b N) N {
	sum, fits := plus(a, b)
	if fits {
		return sum
	}
	top := ^N(0)
	if top < 0 { // signed: all ones is -1
		top = N(uint64(1<<63 - 1))
		if b < 0 {
			return ^top
		}
	}
	return top
}

// Close takes no more and flushes, in at most 5 seconds. If that fails, what
// was counted is kept: call Close or Flush again. A Space does not close its
// buffered counters; close them before it.
func (b *BufferedCounter[N]) Close() error {
	if !b.stop() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := b.Flush(ctx)
	return err
}

// stop ends Adds and the timer; true: something is left to flush.
func (b *BufferedCounter[N]) stop() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	return b.pending != 0 || b.sent.amount != 0
}
