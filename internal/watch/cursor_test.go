package watch_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/watch"
)

// A node that is behind the one before may leave out what was taken there: that is no
// gap, and nothing is taken again.
func TestCursorNeverGoesBack(t *testing.T) {
	p := func(revision uint64, ordinal uint32) watch.Position {
		return watch.Position{Revision: revision, Ordinal: ordinal}
	}
	c := watch.NewCursor(0)
	if resync := c.Ready(p(9, 1)); resync != p(0, 0) || c.Next() != p(9, 1) {
		t.Fatalf("it begins at %v with %v", c.Next(), resync)
	}
	if !c.Take(p(9, 1)) || !c.Take(p(12, 0)) || c.Take(p(12, 0)) || c.Take(p(10, 5)) || c.Ask() != 12 {
		t.Fatalf("it stands at %v", c.Next())
	}
	for _, old := range []watch.Position{p(7, 0), p(12, 0), p(12, 1)} {
		if resync := c.Resync(old); resync != p(0, 0) || c.Next() != p(12, 1) {
			t.Errorf("after a resync to %v it stands at %v and tells %v", old, c.Next(), resync)
		}
		if c.Compacted(); c.Ask() != 0 {
			t.Fatal("it asks for what is forgotten")
		}
		if resync := c.Ready(old); resync != p(0, 0) || c.Next() != p(12, 1) || c.Ask() != 12 {
			t.Errorf("ready at %v it stands at %v and tells %v", old, c.Next(), resync)
		}
	}
	if c.Compacted(); c.Ready(p(20, 3)) != p(20, 3) || c.Next() != p(20, 3) {
		t.Errorf("it stands at %v", c.Next())
	}
	if c.Resync(p(30, 0)) != p(30, 0) || c.Take(p(29, 9)) || !c.Take(p(30, 0)) {
		t.Errorf("it stands at %v", c.Next())
	}
}
