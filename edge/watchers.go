package edge

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// watchers are told of changes. To tell nobody costs one load.
type watchers struct {
	mu   sync.Mutex
	list atomic.Pointer[[]chan struct{}]
}

func (w *watchers) add() (changes <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	w.set(func(list []chan struct{}) []chan struct{} { return append(list, ch) })
	return ch, func() {
		w.set(func(list []chan struct{}) []chan struct{} {
			return slices.DeleteFunc(list, func(o chan struct{}) bool { return o == ch })
		})
	}
}

// set replaces the list by a changed copy; nil if nobody is left.
func (w *watchers) set(change func([]chan struct{}) []chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []chan struct{}
	if p := w.list.Load(); p != nil {
		list = slices.Clone(*p)
	}
	if list = change(list); len(list) == 0 {
		w.list.Store(nil)
		return
	}
	w.list.Store(&list)
}

func (w *watchers) tell() {
	p := w.list.Load()
	if p == nil {
		return
	}
	for _, ch := range *p {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// await waits until reached, looking after each change.
func (w *watchers) await(ctx context.Context, reached func() bool) error {
	changes, stop := w.add()
	defer stop()
	for !reached() {
		select {
		case <-changes:
		case <-ctx.Done():
			return fmt.Errorf("edge: await: %w", ctx.Err())
		}
	}
	return nil
}

// Watch has changes receive after something was taken from any key, by this node or another: once
// for all since the last receive; also if all that is heard of it is what the key owes. What only
// the time changes, as a window that begins, is not told. stop ends it.
func (l *Limiter) Watch() (changes <-chan struct{}, stop func()) { return l.watchers.add() }
