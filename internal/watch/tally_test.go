package watch_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// What is published is counted, whether or not anybody watches, and also when it is no longer kept; a jump counts nothing.
func TestTally(t *testing.T) {
	h := watch.NewHub(2, 0)
	for rev := range uint64(10) {
		h.Publish([]core.Event{event(rev+1, "a", core.VerbAcquired), event(rev+1, "b", core.VerbExpired)}, rev+1)
	}
	h.Jump(100)
	h.Publish([]core.Event{{Revision: 101, Kind: core.EventLimit, Verb: core.VerbDelete, Name: "last"}}, 101)
	all := h.Tally()
	if all[core.EventLock][core.VerbAcquired] != 10 || all[core.EventLock][core.VerbExpired] != 10 || all[core.EventLimit][core.VerbDelete] != 1 {
		t.Errorf("counted %v", all)
	}
}
