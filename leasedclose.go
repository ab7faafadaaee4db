package holdfast

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// closeAgain is between two tries of Close to give back what the backend, which was away, was not told.
const closeAgain = 200 * time.Millisecond

// leasedRest is what Close has to see to besides the blocks that are in use.
type leasedRest struct {
	once sync.Once
	// closing: Close is at it, and takes blocks.
	closing bool
	blocks  map[string]*leasedKey
	// returns are the blocks that are being given back; they begin before Close does.
	returns sync.WaitGroup
}

// add has Close give back blocks, once more or for the first time; false: it is over.
func (r *leasedRest) add(key string, blocks ...*leasedBlock) bool {
	if !r.closing {
		return false
	}
	k := r.blocks[key]
	if k == nil {
		k = &leasedKey{}
		r.blocks[key] = k
	}
	k.add(blocks)
	return true
}

// add adds blocks in the order in which they were had: what they have left is used and given back by it.
func (k *leasedKey) add(blocks []*leasedBlock) {
	k.blocks = append(k.blocks, blocks...)
	slices.SortFunc(k.blocks, func(a, b *leasedBlock) int { return a.got.Compare(b.got) })
}

// Close gives back what is left of all blocks, also of those on their way, in at most 5 seconds; a
// backend that is away meanwhile is told again. What is left then passes unused. Calls answer
// ErrClosed from the beginning on, also those that wait for a block.
func (l *LeasedLimiter) Close() error {
	l.rest.once.Do(l.close)
	return nil
}

// isClosed: Close has begun.
func (l *LeasedLimiter) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

func (l *LeasedLimiter) close() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l.mu.Lock()
	keys, before, fetching := l.keys, l.before, maps.Clone(l.fetching)
	followAll(keys)
	followAll(before)
	l.rest.closing, l.rest.blocks = true, map[string]*leasedKey{}
	close(l.closed)
	if l.keys, l.before = nil, nil; l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	l.giveBackAll(ctx, keys, before)
	for _, f := range fetching {
		select {
		case <-f.done:
		case <-ctx.Done():
		}
	}
	l.awaitReturns(ctx)
	l.giveBackRest(ctx)
}

// awaitReturns waits for what was being given back when Close began.
func (l *LeasedLimiter) awaitReturns(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		l.rest.returns.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// giveBackRest gives back, until ctx ends, what the backend was not told.
func (l *LeasedLimiter) giveBackRest(ctx context.Context) {
	for rest := l.takeRest(ctx); len(rest) > 0; rest = l.takeRest(ctx) {
		l.giveBackAll(ctx, rest)
		if !l.hasRest() {
			continue
		}
		select {
		case <-time.After(closeAgain):
		case <-ctx.Done():
		}
	}
}

// takeRest is what the backend was not told; none: Close is over.
func (l *LeasedLimiter) takeRest(ctx context.Context) map[string]*leasedKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := l.rest.blocks
	l.rest.blocks = map[string]*leasedKey{}
	if len(rest) == 0 || ctx.Err() != nil || l.l.s.r.life.Err() != nil {
		l.rest.closing = false
		return nil
	}
	return rest
}

func (l *LeasedLimiter) hasRest() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.rest.blocks) > 0
}
