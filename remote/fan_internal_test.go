package remote

import (
	"math/rand/v2"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
)

// reading is a watcher of the model: what it has seen, by index of all events.
type reading struct {
	place
	next int
}

// TestFan reads one fan from many places at random: each sees every event from its
// revision on, in order, or is told where it goes on.
func TestFan(t *testing.T) {
	resyncs := 0
	for seed := range uint64(15) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var f fan
		var all []driver.Event
		var readers []*reading
		revision := uint64(1)
		for range 3000 {
			switch n := rnd.IntN(100); {
			case n < 40:
				batch := make([]driver.Event, 1+rnd.IntN(40))
				for i := range batch {
					if i == 0 || rnd.IntN(3) > 0 {
						revision++
					}
					batch[i] = driver.Event{Revision: revision, Number: uint64(len(all) + i), Value: make([]byte, rnd.IntN(2048))}
				}
				all = append(all, batch...)
				f.add(batch)
			case n < 41:
				revision += 5
				f.gap(revision + 1)
			case n < 42:
				read := f.end()
				for _, r := range readers {
					read = min(read, max(r.at, f.base))
				}
				f.drop(read)
			case n < 44:
				from := revision + uint64(rnd.IntN(3))
				r := &reading{place: place{at: f.end(), from: from}, next: len(all)}
				readers = append(readers, r)
			case len(readers) > 0:
				r := readers[rnd.IntN(len(readers))]
				before := r.from
				events, resync := f.read(&r.place, nil, 100)
				if resync != 0 {
					resyncs++
					if resync <= before {
						t.Fatalf("seed %d: a resync to %d for one who is at %d", seed, resync, before)
					}
					continue
				}
				for _, e := range events {
					for r.next < len(all) && all[r.next].Revision < r.from {
						r.next++
					}
					if e.Number != uint64(r.next) {
						t.Fatalf("seed %d: event %d is not what follows, but %d", seed, e.Number, r.next)
					}
					r.next++
				}
			}
			if len(f.events) > maxEvents || f.bytes > maxBytes {
				t.Fatalf("seed %d: %d events, %d bytes are kept", seed, len(f.events), f.bytes)
			}
		}
	}
	if resyncs == 0 {
		t.Error("nobody ever fell behind: the test shows nothing")
	}
}
