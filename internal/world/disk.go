package world

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// files is the disk of one start of a node: slow, sometimes failing, and gone with
// the start. Unlike package simdisk it may be used by several goroutines.
type files struct {
	mu     sync.Mutex
	disk   *simdisk.Disk
	faulty *simdisk.Faults
	rng    *rand.Rand
	slow   time.Duration // more for each sync
	still  time.Time     // nothing is done before
	sick   map[string]error
	off    error // the power is
	left   int   // writes until it is
	cut    bool  // the power goes after left
}

func newFiles(d *simdisk.Disk, rng *rand.Rand) *files {
	f := &files{disk: d, rng: rng, sick: map[string]error{}}
	f.faulty = &simdisk.Faults{FS: d, Check: f.check}
	return f
}

// check is asked before each operation; f is locked.
func (f *files) check(op simdisk.Op) error {
	if f.cut && op.Writes() {
		if f.left--; f.left < 0 {
			f.off = simdisk.ErrPower
		}
	}
	if f.off != nil {
		return f.off
	}
	if err := f.sick[op.Kind]; err != nil && !strings.HasSuffix(op.Name, "LOCK") {
		delete(f.sick, op.Kind)
		return err
	}
	return nil
}

// sicken has the next operation of a kind fail.
func (f *files) sicken(kind string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sick[kind] = err
}

// heal takes back what has not struck yet.
func (f *files) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.sick)
	f.slow, f.still, f.cut = 0, time.Time{}, false
}

func (f *files) slowDown(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slow = d
}

// hold stops the disk for a while.
func (f *files) hold(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.still = time.Now().Add(d)
}

// powerOff ends the disk, now or in the middle of what is written next, and
// returns what the next start finds.
func (f *files) powerOff(rng *rand.Rand, kill bool) *simdisk.Disk {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = simdisk.ErrPower
	if kill {
		return f.disk.Clone()
	}
	return f.disk.Crash(rng.IntN)
}

// cutSoon has the power go after some more writes.
func (f *files) cutSoon(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut, f.left = true, n
}

// took sleeps as long as an operation takes, and longer while the disk is held.
func (f *files) took(sync bool) {
	f.mu.Lock()
	d := max(time.Until(f.still), 0) + f.slow/4
	if sync {
		d = max(d, 0) + f.slow + 100*time.Microsecond + time.Duration(f.rng.Int64N(int64(2*time.Millisecond)))
		if f.rng.IntN(400) == 0 {
			d += time.Duration(f.rng.Int64N(int64(1500 * time.Millisecond)))
		}
	}
	f.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
}

func locked[T any](f *files, do func() (T, error)) (T, error) {
	f.took(false)
	f.mu.Lock()
	defer f.mu.Unlock()
	return do()
}

func (f *files) do(do func() error) error {
	_, err := locked(f, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (f *files) open(do func(string) (storage.File, error), name string) (storage.File, error) {
	x, err := locked(f, func() (storage.File, error) { return do(name) })
	if err != nil {
		return nil, err
	}
	return &openFile{f, x}, nil
}

// MkdirAll is of storage.FS, as are the following.
func (f *files) MkdirAll(dir string) error {
	return f.do(func() error { return f.faulty.MkdirAll(dir) })
}

func (f *files) Create(name string) (storage.File, error)   { return f.open(f.faulty.Create, name) }
func (f *files) Open(name string) (storage.File, error)     { return f.open(f.faulty.Open, name) }
func (f *files) OpenRead(name string) (storage.File, error) { return f.open(f.faulty.OpenRead, name) }
func (f *files) Rename(from, to string) error {
	return f.do(func() error { return f.faulty.Rename(from, to) })
}
func (f *files) Remove(name string) error { return f.do(func() error { return f.faulty.Remove(name) }) }
func (f *files) List(dir string) ([]string, error) {
	return locked(f, func() ([]string, error) { return f.faulty.List(dir) })
}

func (f *files) SyncDir(dir string) error {
	f.took(true)
	return f.do(func() error { return f.faulty.SyncDir(dir) })
}

func (f *files) Lock(name string) (io.Closer, error) {
	c, err := locked(f, func() (io.Closer, error) { return f.faulty.Lock(name) })
	if err != nil {
		return nil, err
	}
	return closer(func() error { return f.do(c.Close) }), nil
}

type closer func() error

func (c closer) Close() error { return c() }

// openFile is a file of a disk.
type openFile struct {
	f *files
	storage.File
}

func (o *openFile) ReadAt(p []byte, off int64) (int, error) {
	return locked(o.f, func() (int, error) { return o.File.ReadAt(p, off) })
}

func (o *openFile) WriteAt(p []byte, off int64) (int, error) {
	return locked(o.f, func() (int, error) { return o.File.WriteAt(p, off) })
}
func (o *openFile) Size() (int64, error) { return locked(o.f, o.File.Size) }
func (o *openFile) Truncate(size int64) error {
	return o.f.do(func() error { return o.File.Truncate(size) })
}
func (o *openFile) Close() error { return o.f.do(o.File.Close) }

func (o *openFile) Sync() error {
	o.f.took(true)
	return o.f.do(o.File.Sync)
}

// injected: an error of the disk that the world has ordered.
func injected(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, simdisk.ErrPower)
}
