package filehold_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/filehold"
)

// BenchmarkPair takes a free mutex and gives it back, beside what the kernel
// alone needs for it: open, flock, fstat, stat and close of the same file. Both
// are done many times in turns, and compared in processor time: what else uses
// the machine is in neither.
func BenchmarkPair(b *testing.B) {
	dir := b.TempDir()
	m := space(b, dir).Mutex("m")
	ctx := context.Background()
	path := filepath.Join(dir, filehold.FileName("m"))
	pair := func() {
		h, err := m.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(); err != nil {
			b.Fatal(err)
		}
	}
	pair() // makes the file
	const turn = 100
	var ours, kernel time.Duration
	for b.Loop() {
		ours += processorTime(func() { repeat(turn, pair) })
		kernel += processorTime(func() { repeat(turn, func() { bare(b, path) }) })
	}
	b.ReportMetric(float64(ours)/float64(b.N*turn), "ns/pair")
	b.ReportMetric(float64(ours)/float64(kernel), "x-flock")
}

func repeat(n int, f func()) {
	for range n {
		f()
	}
}

// processorTime is what f costs this process.
func processorTime(f func()) time.Duration {
	before := readClock(clockProcessCPU)
	f()
	return time.Duration(readClock(clockProcessCPU) - before)
}

// bare is the lock without us.
func bare(b *testing.B, path string) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	var here, there syscall.Stat_t
	if syscall.Flock(fd, syscall.LOCK_EX) != nil || syscall.Fstat(fd, &here) != nil || syscall.Stat(path, &there) != nil || here.Ino != there.Ino {
		b.Fatal("not locked")
	}
	if err := syscall.Close(fd); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCounterAdd counts, beside an append of as much with fdatasync, in
// turns. The medians are compared: a disk that is busy for a moment is in few of
// them.
func BenchmarkCounterAdd(b *testing.B) {
	dir := b.TempDir()
	c := space(b, dir).Counter("c")
	ctx := context.Background()
	f, err := os.OpenFile(filepath.Join(dir, "appended"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	record := make([]byte, 80)
	var ours, disk []time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := c.Add(ctx, 1); err != nil {
			b.Fatal(err)
		}
		half := time.Now()
		if _, err := f.Write(record); err != nil {
			b.Fatal(err)
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
		ours, disk = append(ours, half.Sub(start)), append(disk, time.Since(half))
	}
	b.ReportMetric(float64(percentile(ours, 50)), "ns/add")
	b.ReportMetric(float64(percentile(ours, 50))/float64(percentile(disk, 50)), "x-append")
}

// BenchmarkSemaphore takes a permit and gives it back.
func BenchmarkSemaphore(b *testing.B) {
	s := space(b, b.TempDir()).Semaphore("s", 4)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		h, err := s.Acquire(ctx, 1)
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(); err != nil {
			b.Fatal(err)
		}
	}
}
