package watch

import (
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// fanItem is an event or a gap that was ever given to a fan.
type fanItem struct {
	event core.Event
	next  Position // of a gap
	gap   bool
	size  int
}

// fanModel is a fan beside everything that it was ever given, of which it keeps what is
// from kept on.
type fanModel struct {
	*Fan[core.Event]
	all      []fanItem
	bytes    []int // of all items up to each
	kept     int
	revision uint64
	readers  []*fanReader
}

// fanReader is a reader beside its place among all items.
type fanReader struct {
	Reader
	place int
	from  Position
}

func newFanModel(events, bytes, readers int) *fanModel {
	m := &fanModel{Fan: NewFan(FanConfig[core.Event]{
		MaxEvents: events, MaxBytes: bytes,
		At:   func(e *core.Event) Position { return Position{Revision: e.Revision, Ordinal: e.Ordinal} },
		Size: func(e *core.Event) int { return len(e.Name) },
	})}
	for range readers {
		m.join()
	}
	return m
}

func (m *fanModel) join() {
	m.readers = append(m.readers, &fanReader{Reader: m.Join(), place: len(m.all)})
}

func (m *fanModel) places() iter.Seq[*Reader] {
	return func(yield func(*Reader) bool) {
		for _, r := range m.readers {
			if !yield(&r.Reader) {
				return
			}
		}
	}
}

// add gives the fan n events, as many as it takes.
func (m *fanModel) add(t *testing.T, r *rand.Rand, n int) {
	t.Helper()
	var events []core.Event
	revision := m.revision
	for range n {
		revision++
		events = append(events, core.Event{Revision: revision, Name: "abcdefghij"[:r.IntN(10)]})
	}
	foremost := m.kept
	for _, reader := range m.readers {
		foremost = max(foremost, reader.place)
	}
	taken := m.Add(events, m.places())
	m.revision += uint64(taken)
	for _, e := range events[:taken] {
		m.note(fanItem{event: e, size: len(e.Name)})
	}
	if len(m.readers) > 0 && m.kept > foremost {
		t.Fatalf("the foremost reader, at %d, lost what is before %d", foremost, m.kept)
	}
	if len(m.readers) == 0 && taken != n {
		t.Fatalf("without readers %d of %d events are taken", taken, n)
	}
}

func (m *fanModel) gap() {
	m.revision += 5
	next := Position{Revision: m.revision + 1}
	m.Gap(next)
	m.note(fanItem{next: next, gap: true})
}

// note forgets what is too much, one item after the other.
func (m *fanModel) note(x fanItem) {
	before := 0
	if n := len(m.bytes); n > 0 {
		before = m.bytes[n-1]
	}
	m.all, m.bytes = append(m.all, x), append(m.bytes, before+x.size)
	for len(m.all)-m.kept > m.MaxEvents || m.kept < len(m.all) && m.weight() > m.MaxBytes {
		m.kept++
	}
}

// weight is how many bytes are kept, but for the first item.
func (m *fanModel) weight() int { return m.bytes[len(m.bytes)-1] - m.bytes[m.kept] }

func (m *fanModel) trim() {
	m.Trim(m.places())
	least := len(m.all)
	for _, r := range m.readers {
		least = min(least, max(r.place, m.kept))
	}
	m.kept = least
}

// read compares what a reader is told with what it has to be told: the next events,
// without a hole, or that there is one.
func (m *fanModel) read(t *testing.T, r *fanReader, limit int) {
	t.Helper()
	got, resync := m.Read(&r.Reader, nil, limit)
	if lost := r.place < m.kept; lost {
		r.place = m.kept + (len(m.all)-m.kept)/2
		want := m.behind(r.place)
		if want.Compare(r.from) > 0 {
			r.from = want
			if resync != want.Revision || len(got) > 0 {
				t.Fatalf("a reader that is behind is told %d events and the resync %d, want %d", len(got), resync, want.Revision)
			}
			return
		}
	}
	var want []core.Event
	for ; r.place < len(m.all) && len(want) < limit; r.place++ {
		x := m.all[r.place]
		if x.gap && len(want) > 0 {
			break
		}
		if x.gap && x.next.Compare(r.from) > 0 {
			r.from = x.next
			r.place++
			if resync != x.next.Revision || len(got) > 0 {
				t.Fatalf("at a gap a reader is told %d events and the resync %d, want %d", len(got), resync, x.next.Revision)
			}
			return
		}
		if !x.gap && x.event.Revision >= r.from.Revision {
			want = append(want, x.event)
		}
	}
	if resync != 0 || !slices.EqualFunc(got, want, func(a, b core.Event) bool { return a.Revision == b.Revision && a.Name == b.Name }) {
		t.Fatalf("a reader is told %d events and the resync %d, want %d events", len(got), resync, len(want))
	}
}

// behind is where a reader goes on that has lost everything before that place.
func (m *fanModel) behind(place int) Position {
	if place == 0 {
		return Position{}
	}
	if x := m.all[place-1]; x.gap {
		return x.next
	} else {
		return Position{Revision: x.event.Revision + 1}
	}
}

// However much comes over one subscription, every reader is told all of it in order, or
// where something is missing; the foremost loses nothing, and no more is kept than asked.
func TestFanSizes(t *testing.T) {
	for _, n := range modelSizes() {
		for _, readers := range []int{0, 1, 3, 20} {
			for _, kept := range []int{1, 4, 100, 100_000} {
				r := rand.New(rand.NewPCG(uint64(n), uint64(readers)))
				m := newFanModel(kept, kept*5, readers)
				for len(m.all) < n {
					m.step(t, r)
				}
				for _, reader := range m.readers {
					for reader.place < len(m.all) {
						m.read(t, reader, 1000)
					}
				}
				if m.len() != len(m.all)-m.kept || len(m.items) > 2*m.len()+1 {
					t.Fatalf("%d items are kept in %d places, want %d", m.len(), len(m.items), len(m.all)-m.kept)
				}
			}
		}
	}
}

func (m *fanModel) step(t *testing.T, r *rand.Rand) {
	t.Helper()
	switch k := r.IntN(20); {
	case k < 8:
		m.add(t, r, 1+r.IntN(30))
	case k == 8:
		m.gap()
	case k == 9:
		m.trim()
	case k == 10 && len(m.readers) > 1:
		m.readers = m.readers[1:]
		m.join()
	case len(m.readers) > 0:
		m.read(t, m.readers[r.IntN(len(m.readers))], 1+r.IntN(40))
	}
}
