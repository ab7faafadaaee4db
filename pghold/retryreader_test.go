package pghold_test

import (
	"context"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pghold"
)

// TestReaderWithoutAConnection: a reader that waits without a connection of its own gets the
// lock when no writer is before it any more, also beside another reader of its program.
func TestReaderWithoutAConnection(t *testing.T) {
	url := database(t)
	a, b := openPool(t, url, &pghold.Options{Waits: 1}), open(t, url)
	first := must(b.Mutex("x").Acquire(t.Context()))(t)
	got := waiting(t, a, "x")
	check(t, first.Release())
	second := granted(t, got) // which keeps the connection on which it waited
	beside := must(a.RWMutex("r").Reader().Acquire(t.Context()))(t)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	waits := make(chan struct{}, 2)
	told := holdfast.OnWait(func(int) { waits <- struct{}{} })
	go func() { _, err := b.RWMutex("r", told).Writer().Acquire(ctx); left <- err }()
	<-waits
	reads := make(chan *holdfast.Hold, 1)
	go func() {
		h, err := a.RWMutex("r", told).Reader().Acquire(t.Context())
		if err != nil {
			t.Error(err)
		}
		reads <- h
	}()
	<-waits
	cancel()
	refused(t, <-left, context.Canceled)
	check(t, granted(t, reads).Release())
	check(t, beside.Release())
	check(t, second.Release())
}
