package fence

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// disk is what replace needs of a file system. A test puts one in its place that
// loses power at every step.
type disk interface {
	Create(path string) (diskFile, error)
	Rename(from, to string) error
	SyncDir(path string) error
}

type diskFile interface {
	io.WriteCloser
	Sync() error
}

// replace gives a file new content such that after a crash at any moment it has
// the old content or the new one, and after replace has returned the new one.
func replace(d disk, path string, data []byte) error {
	tmp := path + ".tmp"
	if err := writeSynced(d, tmp, data); err != nil {
		return err
	}
	if err := d.Rename(tmp, path); err != nil {
		return err
	}
	return d.SyncDir(filepath.Dir(path))
}

func writeSynced(d disk, path string, data []byte) error {
	f, err := d.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

type osDisk struct{}

func (osDisk) Create(path string) (diskFile, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }

func (osDisk) SyncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
