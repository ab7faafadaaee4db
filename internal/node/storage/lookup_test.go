package storage_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// Promise: Entries keeps to its bounds, from memory and from disk alike.
func TestEntries(t *testing.T) {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	must(t, s.Append(storage.Batch{HardState: hard(1, 0, 0), Entries: entries(1, 6, 1, 100)}))
	must(t, s.Append(storage.Batch{HardState: hard(2, 0, 0), Entries: entries(7, 9, 2, 100)}))
	must(t, create(s, meta(3, 1)))
	must(t, s.Compact(3))
	cold, _ := mustOpen(t, disk.Clone())
	for name, s := range map[string]*storage.Store{"warm": s, "cold": cold} {
		for _, c := range []struct {
			lo, hi, bytes uint64
			want          []uint64
			err           error
		}{
			{4, 10, 10_000, []uint64{4, 5, 6, 7, 8, 9}, nil},
			{4, 8, 10_000, []uint64{4, 5, 6, 7}, nil},
			{5, 10, 250, []uint64{5, 6}, nil},
			{5, 10, 300, []uint64{5, 6, 7}, nil},
			{6, 10, 0, []uint64{6}, nil},
			{9, 10, 1, []uint64{9}, nil},
			{7, 7, 100, nil, nil},
			{3, 10, 100, nil, storage.ErrCompacted},
			{0, 10, 100, nil, storage.ErrCompacted},
			{9, 11, 100, nil, storage.ErrUnavailable},
			{20, 21, 100, nil, storage.ErrUnavailable},
		} {
			got, err := s.Entries(c.lo, c.hi, c.bytes)
			var indexes []uint64
			for _, e := range got {
				indexes = append(indexes, e.Index)
				must(t, sameEntry(e, entry(e.Index, 1+e.Index/7, 100)))
			}
			if !slices.Equal(indexes, c.want) || !errors.Is(err, c.err) {
				t.Errorf("%s: Entries(%d, %d, %d) = %v, %v; want %v, %v", name, c.lo, c.hi, c.bytes, indexes, err, c.want, c.err)
			}
		}
		for index, want := range map[uint64]error{2: storage.ErrCompacted, 3: nil, 9: nil, 10: storage.ErrUnavailable} {
			if _, err := s.Term(index); !errors.Is(err, want) {
				t.Errorf("%s: Term(%d): %v, want %v", name, index, err, want)
			}
		}
	}
	for _, err := range cold.Replay(2) {
		if !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("replay of compacted entries: %v", err)
		}
	}
	for range cold.Replay(4) {
		break // stopping early is fine
	}
}
