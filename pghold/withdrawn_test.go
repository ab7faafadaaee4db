package pghold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
)

// TestWithdrawnIsNotDone: a wait that its context ends while the server keeps one of its questions waiting is taken back,
// and says so.
func TestWithdrawnIsNotDone(t *testing.T) {
	url := database(t)
	s, look := open(t, url), connect(t, url)
	m := s.RWMutex("0000000000000007").Writer()
	check(t, released(m.Acquire(t.Context())))
	stranger := connect(t, url)
	// The name is held without a row, so that the waiter asks as what; and what it asks for waits.
	must(stranger.Exec(t.Context(), "select pg_advisory_lock(7), pg_advisory_lock(5209599041173340544)"))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := m.Acquire(ctx)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v; want the end of the context", err)
	}
	eventually(t, "the row of the wait stays", func() bool {
		var rows int
		scan(t, look, &rows, "select count(*) from holdfast.claim")
		return rows == 0
	})
	eventually(t, "NotDone is false of each wait", func() bool { // on a busy machine the server may be too slow to confirm one
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := m.Acquire(ctx)
		return holdfast.NotDone(err)
	})
}
