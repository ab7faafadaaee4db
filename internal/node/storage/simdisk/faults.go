package simdisk

import (
	"errors"
	"io"
	"syscall"

	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// Op is one operation on a disk.
type Op struct {
	N    int    // the how-manieth, from 1
	Kind string // "create", "write", "sync", "rename", "read", …
	Name string // the file, by the name it was opened with
}

// Writes reports whether the operation changes anything.
func (o Op) Writes() bool {
	switch o.Kind {
	case "create", "write", "truncate", "sync", "rename", "remove", "sync directory":
		return true
	}
	return false
}

// ErrPower is what Check returns from the moment of a power cut on. Unlike a
// failure it leaves everything as it is, for Disk.Crash to decide.
var ErrPower = errors.New("the power is off")

// Faults is a file system with operations that fail on order.
type Faults struct {
	FS storage.FS
	// Check is asked before each operation. An error becomes its result: nothing
	// is done, except that a write without space (ENOSPC) has written its first
	// half, and that a failed sync leaves pages behind that look written.
	Check func(Op) error
	n     int
}

var _ storage.FS = (*Faults)(nil)

func (f *Faults) check(kind, name string) error {
	f.n++
	return f.Check(Op{f.n, kind, name})
}

// MkdirAll implements storage.FS.
func (f *Faults) MkdirAll(dir string) error {
	if err := f.check("mkdir", dir); err != nil {
		return err
	}
	return f.FS.MkdirAll(dir)
}

func (f *Faults) open(kind, name string, do func(string) (storage.File, error)) (storage.File, error) {
	if err := f.check(kind, name); err != nil {
		return nil, err
	}
	inner, err := do(name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: inner, faults: f, name: name}, nil
}

// Create implements storage.FS.
func (f *Faults) Create(name string) (storage.File, error) {
	return f.open("create", name, f.FS.Create)
}

// Open implements storage.FS.
func (f *Faults) Open(name string) (storage.File, error) { return f.open("open", name, f.FS.Open) }

// OpenRead implements storage.FS.
func (f *Faults) OpenRead(name string) (storage.File, error) {
	return f.open("open", name, f.FS.OpenRead)
}

// Rename implements storage.FS.
func (f *Faults) Rename(from, to string) error {
	if err := f.check("rename", from); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

// Remove implements storage.FS.
func (f *Faults) Remove(name string) error {
	if err := f.check("remove", name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// List implements storage.FS.
func (f *Faults) List(dir string) ([]string, error) {
	if err := f.check("list", dir); err != nil {
		return nil, err
	}
	return f.FS.List(dir)
}

// SyncDir implements storage.FS.
func (f *Faults) SyncDir(dir string) error {
	if err := f.check("sync directory", dir); err != nil {
		return err
	}
	return f.FS.SyncDir(dir)
}

// Lock implements storage.FS.
func (f *Faults) Lock(name string) (io.Closer, error) {
	if err := f.check("lock", name); err != nil {
		return nil, err
	}
	return f.FS.Lock(name)
}

type faultyFile struct {
	storage.File
	faults *Faults
	name   string
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.faults.check("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.faults.check("write", f.name)
	if errors.Is(err, syscall.ENOSPC) {
		n, _ := f.File.WriteAt(p[:len(p)/2], off)
		return n, err
	}
	if err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultyFile) Size() (int64, error) {
	if err := f.faults.check("stat", f.name); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.faults.check("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultyFile) Sync() error {
	err := f.faults.check("sync", f.name)
	if err == nil {
		return f.File.Sync()
	}
	if lossy, ok := f.File.(interface{ forget() }); ok && !errors.Is(err, ErrPower) {
		lossy.forget()
	}
	return err
}
