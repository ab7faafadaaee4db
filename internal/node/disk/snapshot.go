package disk

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// metaOf and stored translate between the two packages' words.
func metaOf(m storage.SnapshotMeta) (replica.SnapshotMeta, error) {
	conf, err := replica.DecodeMembership(m.Conf)
	if err != nil && !errors.Is(err, replica.ErrVersion) {
		err = fmt.Errorf("%w: the checksum is right, and: %w", storage.ErrDamaged, err)
	}
	return replica.SnapshotMeta{Index: m.Index, Term: m.Term, Conf: conf}, err
}

func stored(m replica.SnapshotMeta) (storage.SnapshotMeta, error) {
	conf, err := m.Conf.Encode()
	return storage.SnapshotMeta{Index: m.Index, Term: m.Term, Conf: conf}, err
}

func (d *Disk) newSnapshot(m replica.SnapshotMeta) (*storage.SnapshotWriter, error) {
	meta, err := stored(m)
	if err != nil {
		return nil, err
	}
	return d.store.NewSnapshot(meta)
}

// BeginSnapshot begins to write a snapshot of the node's own state. It is void from
// the beginning if a leader's that is as new has been installed meanwhile. One that is to
// be the only one can have the index of the one that was wrong.
func (d *Disk) BeginSnapshot(m replica.SnapshotMeta) error {
	d.abortOwn()
	least := m.Index
	if m.Only {
		least++
	}
	if void, err := d.void(least); void || err != nil {
		return err
	}
	w, err := d.newSnapshot(m)
	d.own, d.only, d.dropped = w, m.Only, 0
	return err
}

// void reports whether a snapshot as new as index is there already.
func (d *Disk) void(index uint64) (bool, error) {
	newest, err := d.store.Snapshot()
	return newest.Index >= index, err
}

// SaveChunk appends a chunk to it. saved: it was the last one, and the snapshot is
// durable and the newest. A chunk of a void snapshot is dropped, and no error. With
// storage.ErrNoRoom the snapshot is given up.
func (d *Disk) SaveChunk(c replica.Chunk) (saved bool, err error) {
	w := d.own
	if w == nil && c.Index == d.dropped {
		return false, fmt.Errorf("disk: the snapshot at %d made room for the log: %w", c.Index, storage.ErrNoRoom)
	}
	if w == nil || w.Meta().Index != c.Index {
		void, err := d.void(c.Index)
		if err == nil && !void {
			err = fmt.Errorf("disk: no snapshot at %d is being written", c.Index)
		}
		return false, err
	}
	if _, err := w.Write(appendChunk(nil, c.Data)); err != nil {
		d.abortOwn()
		return false, err
	}
	if !c.Last {
		return false, nil
	}
	d.own = nil
	defer w.Abort()
	publish := d.store.CreateSnapshot
	if d.only {
		publish = d.store.ReplaceSnapshots
	}
	err = publish(w)
	return err == nil, err
}

func (d *Disk) abortOwn() {
	if d.own != nil {
		d.own.Abort()
		d.own = nil
	}
}

// OpenSnapshot opens the snapshot at index to send it.
func (d *Disk) OpenSnapshot(index uint64) (*storage.SnapshotReader, error) {
	return d.store.OpenSnapshot(index)
}

// Incoming is a snapshot on its way from a peer.
type Incoming struct {
	d        *Disk
	w        *storage.SnapshotWriter
	restorer *core.Restorer
	chunks   splitter
}

// Receive begins to take a snapshot from a peer. An earlier one that has not come
// to its end is void; one that has stays, since its installation may be on its way.
func (d *Disk) Receive(m storage.SnapshotMeta) (*Incoming, error) {
	d.abortIncoming()
	w, err := d.store.NewSnapshot(m)
	if err != nil {
		return nil, err
	}
	r := core.NewRestorer()
	d.in = &Incoming{d: d, w: w, restorer: r, chunks: splitter{take: r.Write}}
	return d.in, nil
}

// Write takes a piece of it.
func (in *Incoming) Write(p []byte) (int, error) {
	if _, err := in.chunks.Write(p); err != nil {
		return 0, err
	}
	return in.w.Write(p)
}

// End checks the whole against the sender's sum, and takes as long for a large one as
// for a small one. It becomes the node's state only when the node says so, with a write
// that installs it.
func (in *Incoming) End(sum [sha256.Size]byte) error {
	if in.d.in != in {
		return fmt.Errorf("disk: another snapshot has come instead of the one at %d", in.w.Meta().Index)
	}
	if err := in.w.Sync(); err != nil {
		return err
	}
	got, err := in.w.Sum()
	if err != nil {
		return err
	}
	if got != sum {
		return fmt.Errorf("disk: the snapshot at %d arrived damaged: its sum is %x, the sender's %x", in.w.Meta().Index, got, sum)
	}
	in.d.in = nil
	in.d.ended = append(in.d.ended, in)
	return nil
}

// Machine builds the machine of a snapshot that was ended. That takes time in proportion
// to the state and does not use the disk, so that it may run beside everything else; it
// can be called once.
func (in *Incoming) Machine() (*core.Machine, error) {
	r := in.restorer
	in.restorer = nil // its records are as large as the state
	return r.Machine()
}

// Abort gives it up and frees what it took, unless it has been installed or
// another has come instead: for one that does not come to its end, or that the node
// does not want.
func (in *Incoming) Abort() {
	if in.d.in == in {
		in.d.abortIncoming()
	}
	in.d.drop(func(x *Incoming) bool { return x == in })
}

func (d *Disk) abortIncoming() {
	if d.in != nil {
		d.in.w.Abort()
		d.in = nil
	}
}

// install makes the received snapshot the beginning of the log, in which what is
// being made of the node's own state has no place any more.
func (d *Disk) install(w *replica.Write) error {
	at := slices.IndexFunc(d.ended, func(in *Incoming) bool { return in.w.Meta().Index == w.Install.Index })
	if at < 0 {
		return fmt.Errorf("disk: the snapshot at %d is not at hand", w.Install.Index)
	}
	d.abortOwn()
	defer d.dropUpTo(w.Install.Index)
	var b storage.Batch
	join(&b, w)
	return d.patiently(func() error { return d.store.InstallSnapshot(d.ended[at].w, b) })
}

// dropUpTo gives up snapshots that are no news any more.
func (d *Disk) dropUpTo(index uint64) {
	d.drop(func(in *Incoming) bool { return in.w.Meta().Index <= index })
}

func (d *Disk) drop(which func(*Incoming) bool) {
	d.ended = slices.DeleteFunc(d.ended, func(in *Incoming) bool {
		gone := which(in)
		if gone {
			in.w.Abort()
		}
		return gone
	})
}
