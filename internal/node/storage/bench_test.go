package storage_test

import (
	"path/filepath"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// BenchmarkAppend4KiB writes records of 4 KiB, header included, with one sync
// each. Compare with BenchmarkBare4KiB of the same run: both use the file system
// of the temporary directory.
func BenchmarkAppend4KiB(b *testing.B) {
	o := options
	o.SegmentSize, o.CacheBytes = 16<<20, 1<<20
	s, _, err := storage.Open(storage.OS{}, b.TempDir(), o)
	must(b, err)
	data := make([]byte, 4096-storage.RecordHeader-16)
	index, fresh := uint64(0), uint64(0)
	b.SetBytes(4096)
	for b.Loop() {
		index++
		must(b, s.Append(storage.Batch{HardState: hard(1, 0, index-1), Entries: []storage.Entry{{Index: index, Term: 1, Data: data}}}))
		if index-fresh == 6000 { // as a node would: snapshot, compact, recycle
			fresh = index
			b.StopTimer()
			must(b, create(s, meta(index-1, 1)))
			must(b, s.Compact(index-1))
			b.StartTimer()
		}
	}
	b.StopTimer()
	must(b, s.Close())
}

// BenchmarkBare4KiB is the floor: the same bytes written and synced by hand, at
// the end of a growing file and over one that is already filled.
func BenchmarkBare4KiB(b *testing.B) {
	for _, c := range []struct {
		name string
		fill int64
	}{{"growing", 0}, {"overwriting", 64 << 20}} {
		b.Run(c.name, func(b *testing.B) {
			f, err := storage.OS{}.Create(filepath.Join(b.TempDir(), "bare"))
			must(b, err)
			for off := int64(0); off < c.fill; off += 1 << 20 {
				_, err := f.WriteAt(make([]byte, 1<<20), off)
				must(b, err)
			}
			must(b, f.Sync())
			data, off := make([]byte, 4096), int64(0)
			b.SetBytes(4096)
			for b.Loop() {
				_, err := f.WriteAt(data, off)
				must(b, err)
				must(b, f.Sync())
				if off += 4096; c.fill > 0 {
					off %= c.fill
				}
			}
			b.StopTimer()
			must(b, f.Close())
		})
	}
}

// BenchmarkRecover1MCommands opens a log of 1,000,000 commands of 100 bytes, 300 to an
// entry, and reads every entry back.
func BenchmarkRecover1MCommands(b *testing.B) {
	const commands, each, size = 1_000_000, 300, 100
	path := b.TempDir()
	o := storage.Options{ClusterID: 1, NodeID: 1}
	s, _, err := storage.Open(storage.OS{}, path, o)
	must(b, err)
	data := make([]byte, each*size)
	for i := range uint64(commands/each + 1) {
		must(b, s.Append(storage.Batch{HardState: hard(1, 0, i), Entries: []storage.Entry{{Index: i + 1, Term: 1, Data: data}}}))
	}
	must(b, s.Close())
	for b.Loop() {
		s, rec, err := storage.Open(storage.OS{}, path, o)
		must(b, err)
		n := 0
		for e, err := range s.Replay(rec.First) {
			must(b, err)
			n += len(e.Data)
		}
		if n < commands*size {
			b.Fatalf("%d bytes", n)
		}
		must(b, s.Close())
	}
	b.ReportMetric(commands*float64(b.N)/b.Elapsed().Seconds(), "commands/s")
}
