package pghold

import (
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
)

// TestPositionsOnlyGrow: a lock's event has no revision before that of the ready or resync before it, and a resync none at
// which something was told.
func TestPositionsOnlyGrow(t *testing.T) {
	var told [][2]uint64
	f := &follower{from: 7, yield: func(ev driver.Event, _ error) bool {
		told = append(told, [2]uint64{uint64(ev.Revision), uint64(ev.Ordinal)})
		return true
	}}
	tell := func(rev driver.Revision, ord uint32) {
		ev := driver.Event{Revision: rev, Ordinal: ord}
		if f.place(&ev) {
			f.yield(ev, nil)
		}
	}
	f.begin(driver.VerbReady)
	tell(6, 0) // a key's, which the reader has read
	tell(0, 0) // a lock's
	tell(0, 0)
	tell(7, 0)
	tell(8, 0)
	tell(8, 1)
	f.begin(driver.VerbResync)
	f.begin(driver.VerbResync)
	tell(0, 0)
	f.from = 12 // the server's, after a break
	f.begin(driver.VerbResync)
	tell(0, 0)
	want := [][2]uint64{{7, 0}, {7, 0}, {7, 1}, {7, 2}, {8, 0}, {8, 1}, {9, 0}, {9, 0}, {9, 0}, {12, 0}, {12, 0}}
	if !slices.Equal(told, want) {
		t.Errorf("the positions are %v; want %v", told, want)
	}
}
