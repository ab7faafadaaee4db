package storage

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// OS is the operating system's own file system. Its zero value is ready to use.
type OS struct{}

var _ FS = OS{}

// osFile adds to *os.File what File asks for beyond it. Its Sync skips metadata
// that is not needed to read the data back, where the system can (fdatasync): on
// a preallocated file that saves a journal commit for each append.
type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) Sync() error { return dataSync(f.File) }

// MkdirAll syncs each parent in which it made something: without that a power
// loss could take the whole directory away.
func (o OS) MkdirAll(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := o.MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	return o.SyncDir(parent)
}

func (OS) open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Create implements FS; only the owner may read the file.
func (o OS) Create(name string) (File, error) {
	return o.open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

// Open implements FS.
func (o OS) Open(name string) (File, error) { return o.open(name, os.O_RDWR) }

// OpenRead implements FS.
func (o OS) OpenRead(name string) (File, error) { return o.open(name, os.O_RDONLY) }

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// List implements FS.
func (OS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// SyncDir implements FS.
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		d.Close()
		return err
	}
	return d.Close()
}

// Lock implements FS with an advisory lock that the kernel drops when the
// process ends, however it ends.
func (OS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, err
	}
	return namedFile{f}, nil
}

// namedFile is a locked file.
type namedFile struct{ *os.File }

// Named returns nil unless the name has certainly no file, or another one.
func (f namedFile) Named() error {
	locked, err := f.Stat()
	if err != nil {
		return nil
	}
	named, err := os.Stat(f.Name())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && !os.SameFile(locked, named):
		return errors.New("it is another file than the one that was locked")
	}
	return nil
}
