package watch_test

import (
	"iter"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/watch"
)

func newFan(events int) *watch.Fan[core.Event] {
	return watch.NewFan(watch.FanConfig[core.Event]{
		MaxEvents: events, MaxBytes: 1 << 30, At: at, Size: func(*core.Event) int { return 1 },
	})
}

func places(readers ...*watch.Reader) iter.Seq[*watch.Reader] { return slices.Values(readers) }

// However much comes at once, a reader that is alone, or ahead of all others, loses
// nothing; those that it leaves behind are told.
func TestFanWaitsForTheForemost(t *testing.T) {
	f := newFan(100)
	ahead, behind := f.Join(), f.Join()
	all := places(&ahead, &behind)
	var events []core.Event
	for rev := range uint64(20_000) {
		events = append(events, event(rev+1, "a", core.VerbAcquired))
	}
	var got []core.Event
	for rest := events; len(got) < len(events); {
		rest = rest[f.Add(rest, all):]
		n := len(got)
		var resync uint64
		if got, resync = f.Read(&ahead, got, 7); resync != 0 || len(got) == n {
			t.Fatalf("after %d events a resync to %d, or nothing", n, resync)
		}
	}
	if text(got) != text(events) {
		t.Error("the one that is ahead saw something else")
	}
	if _, resync := f.Read(&behind, nil, 7); resync == 0 {
		t.Error("the one that read nothing was not told")
	}
}

// What all have read is forgotten, and nothing else.
func TestFanKeepsWhatIsUnread(t *testing.T) {
	f := newFan(100)
	quick, slow := f.Join(), f.Join()
	all := places(&quick, &slow)
	for rev := range uint64(1000) {
		f.Add([]core.Event{event(rev+1, "a", core.VerbAcquired)}, all)
		f.Read(&quick, nil, 10)
		f.Trim(all)
		if rev%50 != 49 {
			continue
		}
		if got, resync := f.Read(&slow, nil, 100); len(got) != 50 || resync != 0 {
			t.Fatalf("at %d the slow one got %d events and a resync to %d, want 50", rev, len(got), resync)
		}
	}
}
