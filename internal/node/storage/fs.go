package storage

import "io"

// FS is all that the store asks of a file system. OS is the real one; package
// simdisk has one that loses what was not synced, and one that fails on order.
//
// A name is a path as package path/filepath joins it. Errors should wrap the
// cause given by the system, so that errors.Is finds fs.ErrNotExist,
// syscall.ENOSPC and the like.
type FS interface {
	// MkdirAll makes dir and its missing parents, durable on return.
	MkdirAll(dir string) error
	// Create opens name for reading and writing, made new or emptied. Neither
	// the name nor the emptying is durable before SyncDir and Sync.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens an existing file for reading only.
	OpenRead(name string) (File, error)
	// Rename moves a file, replacing what had that name, as one step; durable
	// after SyncDir.
	Rename(from, to string) error
	// Remove deletes a file; durable after SyncDir. Open files stay readable.
	Remove(name string) error
	// List returns the sorted base names of the files in dir.
	List(dir string) ([]string, error)
	// SyncDir makes the creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// Lock takes the file for this process alone until Close or the end of the
	// process. If another holds it, the error wraps ErrLocked.
	Lock(name string) (io.Closer, error)
}

// Space is an FS that knows how much room is left.
type Space interface {
	// Free is how many bytes can still be written below dir; a negative number says
	// that this is not known.
	Free(dir string) (int64, error)
}

// File is one open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size returns the length in bytes.
	Size() (int64, error)
	// Truncate cuts or zero-extends the file; durable after Sync.
	Truncate(size int64) error
	// Sync returns once all writes so far survive a power loss. After an error
	// nothing is known about them.
	Sync() error
}
