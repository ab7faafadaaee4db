package pghold_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/pghold"
)

// TestClosedIsFree: what a Space held is free when Close returns, also if it waited for the same: a wait in the server may
// be granted in the moment in which the hold before it ends.
func TestClosedIsFree(t *testing.T) {
	url := database(t)
	other := open(t, url)
	check(t, released(other.Mutex("m").Acquire(t.Context())))
	for range 5 {
		s := openPool(t, url, &pghold.Options{Timeout: 3 * patience})
		must(s.Mutex("m").Acquire(t.Context()))(t)
		next := waiting(t, s, "m")
		check(t, s.Close())
		check(t, released(other.Mutex("m").TryAcquire(t.Context())))
		<-next
	}
}
