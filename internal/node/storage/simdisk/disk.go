// Package simdisk lets tests and simulations run package storage on a disk that
// forgets: what was not synced may be lost, kept or torn by a crash, in any
// combination and under the caller's control; operations can be made to fail;
// single bits can be flipped.
//
//	disk := simdisk.New()
//	store, _, _ := storage.Open(disk, "node-1", options)
//	…
//	disk = disk.Crash(func(n int) int { return rng.IntN(n) }) // power cut: same seed, same wreck
//
// Everything is deterministic and for one goroutine. Files live in memory: give
// the store a small Options.SegmentSize.
package simdisk

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// Sector is the number of bytes that reach the disk as a whole or not at all.
const Sector = 512

// Disk is a file system in memory. The zero value is not usable; see New.
type Disk struct {
	dirs    map[string]bool
	names   map[string]*inode // what processes see
	durable map[string]*inode // what survives a power cut
	pending []change          // names not yet synced
	locks   map[string]bool
}

var _ storage.FS = (*Disk)(nil)

// inode is the content of a file, as seen and as it would survive.
type inode struct {
	data   []byte
	synced []byte
	dirty  map[int]bool // sectors written since the last sync
}

// change is a creation, a rename or a removal, in one step.
type change struct {
	dir      string
	from, to string // "" = no old or new name
	node     *inode
}

// New returns an empty disk.
func New() *Disk {
	return &Disk{dirs: map[string]bool{}, names: map[string]*inode{}, durable: map[string]*inode{}, locks: map[string]bool{}}
}

func notExist(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

// MkdirAll implements storage.FS.
func (d *Disk) MkdirAll(dir string) error {
	d.dirs[filepath.Clean(dir)] = true
	return nil
}

// Create implements storage.FS.
func (d *Disk) Create(name string) (storage.File, error) {
	name = filepath.Clean(name)
	if !d.dirs[filepath.Dir(name)] {
		return nil, notExist("create", name)
	}
	if n := d.names[name]; n != nil {
		f := &file{disk: d, node: n, name: name}
		return f, f.Truncate(0)
	}
	n := &inode{dirty: map[int]bool{}}
	d.names[name] = n
	d.pending = append(d.pending, change{filepath.Dir(name), "", name, n})
	return &file{disk: d, node: n, name: name}, nil
}

func (d *Disk) open(name string, readonly bool) (storage.File, error) {
	name = filepath.Clean(name)
	n := d.names[name]
	if n == nil {
		return nil, notExist("open", name)
	}
	return &file{disk: d, node: n, name: name, readonly: readonly}, nil
}

// Open implements storage.FS.
func (d *Disk) Open(name string) (storage.File, error) { return d.open(name, false) }

// OpenRead implements storage.FS.
func (d *Disk) OpenRead(name string) (storage.File, error) { return d.open(name, true) }

// Rename implements storage.FS within one directory.
func (d *Disk) Rename(from, to string) error {
	from, to = filepath.Clean(from), filepath.Clean(to)
	n := d.names[from]
	if n == nil {
		return notExist("rename", from)
	}
	delete(d.names, from)
	d.names[to] = n
	d.pending = append(d.pending, change{filepath.Dir(to), from, to, n})
	return nil
}

// Remove implements storage.FS.
func (d *Disk) Remove(name string) error {
	name = filepath.Clean(name)
	n := d.names[name]
	if n == nil {
		return notExist("remove", name)
	}
	delete(d.names, name)
	d.pending = append(d.pending, change{filepath.Dir(name), name, "", n})
	return nil
}

// List implements storage.FS.
func (d *Disk) List(dir string) ([]string, error) {
	dir = filepath.Clean(dir)
	if !d.dirs[dir] {
		return nil, notExist("list", dir)
	}
	var out []string
	for name := range d.names {
		if filepath.Dir(name) == dir {
			out = append(out, filepath.Base(name))
		}
	}
	slices.Sort(out)
	return out, nil
}

// SyncDir implements storage.FS.
func (d *Disk) SyncDir(dir string) error {
	dir = filepath.Clean(dir)
	var rest []change
	for _, c := range d.pending {
		if c.dir == dir {
			c.apply(d.durable)
		} else {
			rest = append(rest, c)
		}
	}
	d.pending = rest
	return nil
}

func (c change) apply(names map[string]*inode) {
	if names[c.from] == c.node {
		delete(names, c.from)
	}
	if c.to != "" {
		names[c.to] = c.node
	}
}

// Lock implements storage.FS. A crash frees all locks.
func (d *Disk) Lock(name string) (io.Closer, error) {
	name = filepath.Clean(name)
	if d.locks[name] {
		return nil, fmt.Errorf("lock %s: %w", name, storage.ErrLocked)
	}
	if d.names[name] == nil {
		if _, err := d.Create(name); err != nil {
			return nil, err
		}
	}
	d.locks[name] = true
	return unlock{d, name}, nil
}

type unlock struct {
	disk *Disk
	name string
}

func (u unlock) Close() error {
	delete(u.disk.locks, u.name)
	return nil
}

// Crash returns the disk as the next start finds it; the old one must not be
// used any more. For each sector and each name that was not synced it asks
// choose(2): 0 loses it, 1 keeps it. Always 0 is the kindest disk to reason
// about and always 1 is kill -9 without power loss; the cases in between are
// where ordering mistakes show.
func (d *Disk) Crash(choose func(n int) int) *Disk {
	after := New()
	after.dirs = maps.Clone(d.dirs)
	names := maps.Clone(d.durable)
	for _, c := range d.pending {
		if choose(2) == 1 {
			c.apply(names)
		}
	}
	seen := map[*inode]*inode{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n := names[name]
		if seen[n] == nil {
			seen[n] = n.crash(choose)
		}
		after.names[name], after.durable[name] = seen[n], seen[n]
	}
	return after
}

// crash returns what is left of a file.
func (n *inode) crash(choose func(int) int) *inode {
	left := slices.Clone(n.synced)
	if len(n.data) < len(left) && choose(2) == 1 {
		left = left[:len(n.data)]
	}
	for _, s := range slices.Sorted(maps.Keys(n.dirty)) {
		from, to := s*Sector, min((s+1)*Sector, len(n.data))
		if from >= to || choose(2) == 0 {
			continue
		}
		for len(left) < to {
			left = append(left, make([]byte, to-len(left))...)
		}
		copy(left[from:to], n.data[from:to])
	}
	return &inode{data: left, synced: slices.Clone(left), dirty: map[int]bool{}}
}

// Clone returns an independent copy of a disk, as kill -9 would leave it.
func (d *Disk) Clone() *Disk { return d.Crash(func(int) int { return 1 }) }

// Bytes returns the size of a file, 0 if there is none.
func (d *Disk) Bytes(name string) int {
	if n := d.names[filepath.Clean(name)]; n != nil {
		return len(n.data)
	}
	return 0
}

// Read returns a copy of a file's content.
func (d *Disk) Read(name string) []byte {
	if n := d.names[filepath.Clean(name)]; n != nil {
		return slices.Clone(n.data)
	}
	return nil
}

// Flip inverts one bit of a file, as bad hardware would: bit 0 is the lowest of
// the first byte. A second Flip puts it right again.
func (d *Disk) Flip(name string, bit int) {
	n := d.names[filepath.Clean(name)]
	n.data[bit/8] ^= 1 << (bit % 8)
	if bit/8 < len(n.synced) {
		n.synced[bit/8] ^= 1 << (bit % 8)
	}
}
