package simdisk

import (
	"io"
	"io/fs"
)

// file is a handle. It stays usable after its file was renamed or removed.
type file struct {
	disk     *Disk
	node     *inode
	name     string
	readonly bool
	closed   bool
}

func (f *file) usable(op string) error {
	if f.closed {
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	}
	return nil
}

func (f *file) writable(op string) error {
	if f.readonly {
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrPermission}
	}
	return f.usable(op)
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if err := f.usable("read"); err != nil {
		return 0, err
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if err := f.writable("write"); err != nil {
		return 0, err
	}
	n := f.node
	n.resize(max(len(n.data), int(off)+len(p)))
	copy(n.data[off:], p)
	n.touch(int(off), int(off)+len(p))
	return len(p), nil
}

func (f *file) Truncate(size int64) error {
	if err := f.writable("truncate"); err != nil {
		return err
	}
	f.node.resize(int(size))
	return nil
}

// resize cuts the file, or fills it up with zeros; those are as volatile as any
// other write.
func (n *inode) resize(size int) {
	old := len(n.data)
	if size <= old {
		n.data = n.data[:size]
		return
	}
	n.data = append(n.data, make([]byte, size-old)...)
	n.touch(old, size)
}

func (n *inode) touch(from, to int) {
	for s := from / Sector; s*Sector < to; s++ {
		n.dirty[s] = true
	}
}

func (f *file) Size() (int64, error) { return int64(len(f.node.data)), f.usable("stat") }

func (f *file) Sync() error {
	if err := f.usable("sync"); err != nil {
		return err
	}
	n := f.node
	size := len(n.data)
	n.synced = append(n.synced[:min(len(n.synced), size)], make([]byte, max(0, size-len(n.synced)))...)
	for s := range n.dirty {
		if from := s * Sector; from < size {
			copy(n.synced[from:], n.data[from:min(from+Sector, size)])
		}
	}
	clear(n.dirty)
	return nil
}

// forget is what kernels do after a failed sync: the pages count as clean and
// can still be read, but they will never reach the disk.
func (f *file) forget() { clear(f.node.dirty) }

func (f *file) Close() error {
	err := f.usable("close")
	f.closed = true
	return err
}
