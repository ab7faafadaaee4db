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
	if !errors.Is(err, context.DeadlineExceeded) || !holdfast.NotDone(err) {
		t.Errorf("%v; NotDone is %t", err, holdfast.NotDone(err))
	}
	eventually(t, "the row of the wait stays", func() bool {
		var rows int
		scan(t, look, &rows, "select count(*) from holdfast.claim")
		return rows == 0
	})
}
