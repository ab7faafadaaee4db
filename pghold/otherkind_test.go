package pghold_test

import (
	"testing"

	"github.com/holdfast-io/holdfast"
)

// TestDeleteOfAnotherKind: a name that is held as a lock is no semaphore, latch or barrier that could be deleted.
func TestDeleteOfAnotherKind(t *testing.T) {
	s, ctx := open(t, database(t)), t.Context()
	must(s.Mutex("m").Acquire(ctx))(t)
	must(s.RWMutex("rw").Reader().Acquire(ctx))(t)
	for _, name := range []string{"m", "rw"} {
		refused(t, s.Semaphore(name, 1).Delete(ctx), holdfast.ErrConflict)
		refused(t, s.Latch(name, 1).Delete(ctx), holdfast.ErrConflict)
		refused(t, s.Barrier(name, 1).Delete(ctx), holdfast.ErrConflict)
	}
	refused(t, s.Semaphore("none", 1).Delete(ctx), holdfast.ErrNotFound)
}
