package pghold

import (
	"context"
	"testing"
	"time"
)

// TestRelaxOnce: a waiters' lock that could not be had, and the next one, have the link
// look no more often than one.
func TestRelaxOnce(t *testing.T) {
	c := quickClients(t, 1)[0]
	l := home(t, c)
	key := mustKey(t, "m")
	j := l.start(time.Minute, func(ctx context.Context) error {
		g := l.waitersLock(key)
		first := l.relaxing
		if err := l.tidyWaitersLock(ctx, key, g, errUnused); err != errUnused {
			return err
		}
		_, err := l.conn.Exec(ctx, "select pg_catalog.pg_advisory_lock_shared($1)", l.waitersLock(key))
		if first == nil || l.relaxing != first {
			t.Error("the link is to look twice which guards it needs")
		}
		return err
	})
	if <-j.done; j.err != nil {
		t.Fatal(j.err)
	}
	within(t, "the link does not look which guards it needs, or goes on for ever", func() (over bool) {
		<-l.start(time.Minute, func(context.Context) error {
			over = len(l.waitersLocks) == 0 && l.relaxing == nil
			return nil
		}).done
		return over
	})
}
