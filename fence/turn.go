package fence

import (
	"context"
	"slices"
	"sync"
)

// turn lets in one exclusive operation or any number of shared ones, in order
// of arrival, so that a writer is not kept waiting by ever new readers. Its
// owner's mutex guards it.
type turn struct {
	inside int // operations in progress; exclusively: -1
	queue  []*waiter
}

type waiter struct {
	mode  Mode
	ready chan struct{} // closed when its turn has come
}

func (t *turn) idle() bool { return t.inside == 0 && len(t.queue) == 0 }

func (t *turn) fits(m Mode) bool {
	return t.inside == 0 || m == Shared && t.inside > 0
}

func (t *turn) enter(m Mode) {
	if m == Shared {
		t.inside++
	} else {
		t.inside = -1
	}
}

// leave ends an operation and lets in those that fit now.
func (t *turn) leave() {
	if t.inside > 0 {
		t.inside--
	} else {
		t.inside = 0
	}
	t.wake()
}

func (t *turn) wake() {
	for len(t.queue) > 0 && t.fits(t.queue[0].mode) {
		t.enter(t.queue[0].mode)
		close(t.queue[0].ready)
		t.queue = slices.Delete(t.queue, 0, 1)
	}
}

// take waits for a turn. mu is the owner's mutex: held before and after, free
// while waiting. When ctx ends first, no turn was taken.
func (t *turn) take(ctx context.Context, mu *sync.Mutex, m Mode) error {
	if len(t.queue) == 0 && t.fits(m) {
		t.enter(m)
		return nil
	}
	w := &waiter{m, make(chan struct{})}
	t.queue = append(t.queue, w)
	mu.Unlock()
	select {
	case <-w.ready:
		mu.Lock()
		return nil
	case <-ctx.Done():
		mu.Lock()
		t.giveUp(w)
		return ctx.Err()
	}
}

// giveUp takes a waiter back, also when its turn has come meanwhile.
func (t *turn) giveUp(w *waiter) {
	i := slices.Index(t.queue, w)
	if i < 0 {
		t.leave()
		return
	}
	t.queue = slices.Delete(t.queue, i, i+1)
	t.wake()
}
