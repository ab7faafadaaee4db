package storage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// Promise: what a newer version wrote is refused by name and left alone, not
// taken for damage. Each kind of header in turn gets version 2 and a right
// checksum.
func TestNewerVersion(t *testing.T) {
	salt := options.Salt
	for _, c := range []struct {
		file     string
		off, end int
		change   func(b []byte)
	}{
		{"identity", 0, 64, func(b []byte) { b[storage.VersionAt] = 3; storage.SealFixed(b, 0) }},
		{"vote", 0, storage.SlotSize, func(b []byte) {
			b[storage.SlotVersionAt] = 2
			storage.SealFixed(b, storage.SlotSeed(salt, 0))
		}},
		{"log-0000000000000001", 0, storage.SegmentHeader, func(b []byte) {
			b[storage.VersionAt] = 2
			storage.SealFixed(b, storage.Seed(salt, 1, 0))
		}},
		{"log-0000000000000001", storage.SegmentHeader, storage.SegmentHeader + 112, func(b []byte) {
			b[storage.RecVersionAt] = 2
			storage.SealRecord(b, storage.Seed(salt, 1, storage.SegmentHeader))
		}},
		{"snap-0000000000000001", 0, storage.SnapHeader, func(b []byte) { b[storage.VersionAt] = 2; storage.SealFixed(b, 0) }},
	} {
		disk := simdisk.New()
		s, _ := mustOpen(t, disk)
		must(t, s.Append(storage.Batch{HardState: hard(1, 0, 0), Entries: entries(1, 1, 1, 16)}))
		must(t, create(s, meta(1, 1)))
		must(t, s.Close())
		b := disk.Read(dir + "/" + c.file)[c.off:c.end]
		c.change(b)
		f, err := disk.Open(dir + "/" + c.file)
		must(t, err)
		_, err = f.WriteAt(b, int64(c.off))
		must(t, err)
		_, _, err = storage.Open(writesNothing(t, disk), dir, options)
		if !errors.Is(err, storage.ErrVersion) || errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), dir+"/"+c.file) {
			t.Errorf("%s at %d: %v, want ErrVersion", c.file, c.off, err)
		}
		if _, err := storage.Verify(writesNothing(t, disk), dir); !errors.Is(err, storage.ErrVersion) {
			t.Errorf("verify %s at %d: %v, want ErrVersion", c.file, c.off, err)
		}
	}
}
