package core_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/gen"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

// TestLargeSnapshots: a machine restored from a snapshot is the one that it was taken from,
// at any size and at any moment, in the midst of ends that take several entries too: it has the
// same snapshot, keeps every invariant, and puts out the same from then on.
func TestLargeSnapshots(t *testing.T) {
	worlds := map[string]func(seed uint64) []twin.Entry{
		"few sessions with much": func(seed uint64) []twin.Entry { return gen.Large(seed, 8_000) },
		"very many sessions":     func(seed uint64) []twin.Entry { return gen.Multitude(seed, 3_000) },
	}
	for name, world := range worlds {
		t.Run(name, func(t *testing.T) {
			seeds(t, 2, func(t *testing.T, seed uint64) {
				c := core.Config{Budget: []int{10_000, 300}[seed%2], Window: 1 << 20}
				if err := sameWhenever(c, world(seed), int(seed)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// sameWhenever restores machines at some entries, and lets them go on beside the first.
func sameWhenever(c core.Config, entries []twin.Entry, seed int) error {
	m := newSubject(c)
	var others []*subject
	for i, e := range entries {
		if _, err := m.Apply(e); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		for _, o := range others {
			if _, err := o.Apply(e); err != nil {
				return fmt.Errorf("entry %d, restored: %w", i, err)
			}
		}
		if err := equalMachines(m, others...); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if rest := len(entries) - i; rest > 60 || rest%5 != seed%5 {
			continue
		}
		o, err := m.restored(1 << 16)
		if err != nil {
			return fmt.Errorf("after entry %d: %w", i, err)
		}
		if err := sameSnapshot(m, o); err != nil {
			return fmt.Errorf("after entry %d: %w", i, err)
		}
		if others = append(others, o); len(others) > 3 {
			others = others[1:]
		}
	}
	return sameSnapshot(m, others...)
}

// sameSnapshot compares machines by their snapshots, and looks at all that they keep beside.
func sameSnapshot(m *subject, others ...*subject) error {
	if err := core.Invariants(m.Machine); err != nil {
		return err
	}
	want := m.sum()
	for _, o := range others {
		if err := core.Invariants(o.Machine); err != nil {
			return fmt.Errorf("restored: %w", err)
		}
		if o.sum() != want {
			return fmt.Errorf("the restored machine has another snapshot")
		}
	}
	return nil
}

// sum is what nodes compare of their snapshots: all records, in any order.
func (s *subject) sum() uint64 {
	v := s.CheckView()
	defer v.Close()
	for done := false; !done; {
		_, done = v.Next(nil, 1<<20)
	}
	return v.Sum()
}
