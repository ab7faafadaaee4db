package storage_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// Promise: what is readable of a damaged store can be read, and no more than
// that; nothing is changed.
func TestSalvage(t *testing.T) {
	const size = storage.RecordHeader + 16 + 400 // eight to a segment
	for _, c := range []struct {
		name          string
		snap, compact uint64 // snapshot at snap-1 and snap
		hurt          func(*simdisk.Disk)
		snapshot      uint64
		first, last   uint64
		err           error
	}{
		{"healthy", 10, 5, func(*simdisk.Disk) {}, 10, 6, 30, nil},
		{"bad record", 10, 5, func(d *simdisk.Disk) {
			d.Flip(dir+"/log-0000000000000002", (storage.SegmentHeader+4*size+100)*8)
		}, 10, 1, 12, nil}, // the compaction came later
		{"bad record before the snapshot", 28, 5, func(d *simdisk.Disk) {
			d.Flip(dir+"/log-0000000000000002", (storage.SegmentHeader+4*size+100)*8)
		}, 28, 29, 28, nil},
		{"bad segment header", 10, 5, func(d *simdisk.Disk) { d.Flip(dir+"/log-0000000000000003", 100) }, 10, 1, 16, nil},
		{"segment cut off", 10, 5, func(d *simdisk.Disk) {
			resize(t, d, dir+"/log-0000000000000002", storage.SegmentHeader+4*size+100)
		}, 10, 1, 12, nil},
		{"last segment cut off behind its records", 10, 5, func(d *simdisk.Disk) {
			resize(t, d, dir+"/log-0000000000000004", int64(d.Bytes(dir+"/log-0000000000000004"))-1)
		}, 10, 6, 30, nil},
		{"segment too long", 10, 5, func(d *simdisk.Disk) { resize(t, d, dir+"/log-0000000000000002", 1<<20) }, 10, 1, 16, nil},
		{"no vote", 10, 5, func(d *simdisk.Disk) { d.Remove(dir + "/vote") }, 10, 6, 30, nil},
		{"bad snapshot, log from there", 10, 10, func(d *simdisk.Disk) { d.Flip(dir+"/snap-000000000000000a", 2000) }, 9, 10, 9, nil},
		{"bad identity", 10, 5, func(d *simdisk.Disk) { d.Flip(dir+"/identity", 200) }, 0, 0, 0, storage.ErrDamaged},
		{"no log, no snapshot", 0, 0, func(d *simdisk.Disk) { d.Flip(dir+"/log-0000000000000001", 200) }, 0, 0, 0, storage.ErrDamaged},
	} {
		disk := simdisk.New()
		s, _ := mustOpen(t, disk)
		for i := uint64(1); i < 31; i++ {
			must(t, s.Append(storage.Batch{HardState: hard(1, 0, i-1), Entries: entries(i, i, 1, 400)}))
		}
		if c.snap > 0 {
			must(t, create(s, meta(c.snap-1, 1)))
			must(t, create(s, meta(c.snap, 1)))
			must(t, s.Compact(c.compact))
		}
		must(t, s.Close())
		c.hurt(disk)
		s, rec, err := storage.Salvage(writesNothing(t, disk), dir)
		if !errors.Is(err, c.err) || rec.Snapshot.Index != c.snapshot || rec.First != c.first || rec.Last != c.last {
			t.Errorf("%s: snapshot %d, entries %d..%d, %v", c.name, rec.Snapshot.Index, rec.First, rec.Last, err)
		}
		if err != nil {
			continue
		}
		must(t, readSnapshot(s, rec.Snapshot.Index))
		for e, err := range s.Replay(rec.First) {
			must(t, err)
			must(t, sameEntry(e, entry(e.Index, 1, 400)))
		}
		refused := []error{s.Append(storage.Batch{Entries: entries(31, 31, 1, 1)}), s.SaveVote(9, 9), s.Mark(), s.Compact(7)}
		for i, err := range refused {
			if !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%s: call %d wrote: %v", c.name, i, err)
			}
		}
		must(t, s.Close())
	}
}

// resize cuts a file off, or adds zeros to it.
func resize(t *testing.T, d *simdisk.Disk, name string, size int64) {
	t.Helper()
	f, err := d.Open(name)
	must(t, err)
	must(t, f.Truncate(size))
	must(t, f.Close())
}
