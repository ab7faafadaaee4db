package holdfast

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-io/holdfast/driver"
)

// Sequence hands out numbers that nobody else gets, growing for each Space that
// asks for them. It takes them from the backend in blocks, so that numbers of a
// program that ends are skipped. At the end of uint64 it answers ErrExhausted;
// it never wraps. Safe for concurrent use; all values of one name in a Space
// share a block.
type Sequence struct {
	s     *Space
	name  string
	batch uint64
	start uint64
	err   error
}

// SequenceOption is [BlockSize] or [StartAt].
type SequenceOption interface{ sequence(*Sequence) }

// BlockSize is how many numbers are taken from the backend at once; 100 unless set.
type BlockSize uint64

func (b BlockSize) sequence(s *Sequence) { s.batch = uint64(b) }

// StartAt is the first number of a new sequence; 1 unless set.
type StartAt uint64

func (n StartAt) sequence(s *Sequence) { s.start = uint64(n) }

const (
	defaultBatch = 100
	defaultStart = 1
)

// Sequence names a sequence; it does no I/O.
func (s *Space) Sequence(name string, opts ...SequenceOption) *Sequence {
	q := &Sequence{s: s, name: s.prefix + name, batch: defaultBatch, start: defaultStart}
	for o := range given(opts) {
		o.sequence(q)
	}
	q.err = firstError(checkName(q.name, s.r.maxName()), s.cfg.err, q.check())
	return q
}

func (q *Sequence) check() error {
	if q.batch < 1 {
		return invalid("BlockSize(0): a block has at least 1 number")
	}
	if q.start < 1 {
		return invalid("StartAt(0): numbers begin at 1 or above, so that 0 can mean none")
	}
	return nil
}

// block is what a Space has of a sequence, from the first Next on until its last number is
// given: names that were used once leave nothing but the numbers they have.
type block struct {
	mu     sync.Mutex
	next   uint64
	left   uint64
	refill *refill // on its way; nil: none is
	over   bool    // it has nothing and gets nothing: another takes its place
}

// refill is one request for a block; all waiting callers share its outcome.
type refill struct {
	done chan struct{}
	err  error
}

func (r *spaceState) blockOf(name string) *block {
	name = r.canonical(name)
	if b, ok := r.sequences.Load(name); ok {
		return b.(*block)
	}
	b, _ := r.sequences.LoadOrStore(name, &block{})
	return b.(*block)
}

// forgetBlock forgets a block that is over, unless another has taken its place.
func (r *spaceState) forgetBlock(name string, b *block) {
	r.sequences.CompareAndDelete(r.canonical(name), b)
}

// Next returns the next number.
func (q *Sequence) Next(ctx context.Context) (uint64, error) {
	if q.err != nil {
		return 0, wrap("next", q.name, q.err)
	}
	for {
		b := q.s.r.blockOf(q.name)
		n, over, r, mine := b.take()
		if over {
			q.s.r.forgetBlock(q.name, b)
		}
		switch {
		case n != 0:
			return n, nil
		case r == nil:
			continue
		case mine:
			q.refill(ctx, b, r)
		}
		if err := r.wait(ctx, mine); err != nil {
			return 0, wrap("next", q.name, err)
		}
	}
}

// take takes a number of the block, which may have been its last. If it has none, n is 0 and r
// the refill to wait for, and mine says that the caller has to do it; r is nil if it was
// over before.
func (b *block) take() (n uint64, over bool, r *refill, mine bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.left > 0:
		n = b.next
		b.next++
		b.left--
		b.over = b.left == 0
		return n, b.over, nil, false
	case b.over:
		return 0, true, nil, false
	case b.refill == nil:
		b.refill, mine = &refill{done: make(chan struct{})}, true
	}
	return 0, false, b.refill, mine
}

// refill asks for a block, and near the end for a single number.
func (q *Sequence) refill(ctx context.Context, b *block, r *refill) {
	n := q.batch
	first, err := q.reserve(ctx, n)
	if errors.Is(err, ErrExhausted) && n > 1 {
		n = 1
		first, err = q.reserve(ctx, n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over = b.over || err != nil; b.over {
		q.s.r.forgetBlock(q.name, b)
	} else {
		b.next, b.left = first, n
	}
	r.err = err
	b.refill = nil
	close(r.done)
}

// wait waits for the refill, which a caller that has done it need not: that gets its answer, also if
// its context has ended. One that failed because its own caller went away is no answer for the others: they
// ask again.
func (r *refill) wait(ctx context.Context, mine bool) error {
	if mine {
		return r.err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if cancellation(r.err) {
		return nil
	}
	return r.err
}

// reserve takes n numbers from the backend.
func (q *Sequence) reserve(ctx context.Context, n uint64) (uint64, error) {
	if err := q.s.r.ready(ctx, driver.FeatureSequence); err != nil {
		return 0, err
	}
	reply, err := q.s.r.d.Reserve(ctx, &driver.ReserveRequest{ID: newID(), Name: q.name, N: n, Start: q.start})
	return reply.First, q.s.r.wrap(ctx, "", "", driver.FeatureSequence, err)
}

// Reserve takes n numbers in a row and returns the first; they are the
// caller's, first to first+n-1.
func (q *Sequence) Reserve(ctx context.Context, n uint64) (first uint64, err error) {
	if q.err == nil && n < 1 {
		return 0, wrap("reserve", q.name, invalid("0 numbers are wanted; Current only looks"))
	}
	return q.ask(ctx, "reserve", n)
}

// Current returns the first number that no client has taken yet. Numbers below
// it may wait in a client's block.
func (q *Sequence) Current(ctx context.Context) (uint64, error) { return q.ask(ctx, "current", 0) }

func (q *Sequence) ask(ctx context.Context, op string, n uint64) (uint64, error) {
	if q.err != nil {
		return 0, wrap(op, q.name, q.err)
	}
	first, err := q.reserve(ctx, n)
	return first, wrap(op, q.name, err)
}

// Delete forgets the sequence: the next use begins at [StartAt] again, with
// numbers that were handed out before. Other programs use up their blocks.
func (q *Sequence) Delete(ctx context.Context) error {
	err := q.s.remove(ctx, driver.Sequence, q.name, driver.FeatureSequence, q.err)
	if !NotDone(err) || errors.Is(err, ErrNotFound) { // it may be gone: by this call, or by another program's
		q.s.r.dropBlock(q.name)
	}
	return err
}

// dropBlock has the next number taken from the backend. A refill that is on its way may be of the
// sequence that was: its numbers are nobody's.
func (r *spaceState) dropBlock(name string) {
	if b, ok := r.sequences.LoadAndDelete(r.canonical(name)); ok {
		b.(*block).drop()
	}
}

func (b *block) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left, b.over = 0, true
}
