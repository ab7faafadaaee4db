package natshold

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
)

// A server that is behind another brings again what was told: that is told once. A change that is
// not the next one ends the feed, and what is missing before it is still to be told.
func TestFeedOfAServerThatIsBehind(t *testing.T) {
	var told []driver.Revision
	w := &watch{last: 10, yield: func(item driver.Item, _ error) bool {
		told = append(told, item.Revision)
		return true
	}}
	for _, at := range []driver.Revision{8, 9, 10, 11} {
		if err := w.take(&change{item: driver.Item{Key: "c/n", Revision: at}}); err != nil {
			t.Errorf("%d: %v", at, err)
		}
	}
	if !slices.Equal(told, []driver.Revision{11}) || w.missed {
		t.Errorf("told %d, missed: %v", told, w.missed)
	}
	if err := w.take(&change{item: driver.Item{Key: "c/n", Revision: 15}}); !errors.Is(err, errMissed) || !w.missed || w.last != 14 || len(told) != 1 {
		t.Errorf("a gap: %v, missed: %v up to %d, told %d", err, w.missed, w.last, told)
	}
}

// A feed that begins before what was told is that of a server that is behind, unless the bucket
// itself has gone back: then the watch ends.
func TestFeedThatBeginsBeforeWhatWasTold(t *testing.T) {
	s, _ := counted(t)
	var told []driver.Revision
	w := &watch{s: s, missed: true, yield: func(item driver.Item, _ error) bool {
		told = append(told, item.Revision)
		return true
	}}
	w.last = driver.Revision(s.newest.Load()) + 1000
	if err := w.resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.feed.close()
	if !slices.Equal(told, []driver.Revision{w.last}) || w.missed {
		t.Errorf("told gaps up to %d, want %d; missed: %v", told, w.last, w.missed)
	}
	s.saw(w.last)
	if err := w.begin(t.Context()); w.lost(t.Context(), err) || err == nil || len(told) != 1 {
		t.Errorf("told %d of a bucket that has gone back, %v", told, err)
	}
}
