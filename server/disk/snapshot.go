package disk

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/server/replica"
	"github.com/holdfast-io/holdfast/server/storage"
)

// metaOf and stored translate between the two packages' words.
func metaOf(m storage.SnapshotMeta) (replica.SnapshotMeta, error) {
	conf, err := replica.DecodeMembership(m.Conf)
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

// BeginSnapshot begins to write a snapshot of the node's own state.
func (d *Disk) BeginSnapshot(m replica.SnapshotMeta) error {
	d.abortOwn()
	w, err := d.newSnapshot(m)
	d.own = w
	return err
}

// WriteSnapshot appends a chunk to it.
func (d *Disk) WriteSnapshot(chunk []byte) error {
	if d.own == nil {
		return fmt.Errorf("disk: no snapshot is being written")
	}
	_, err := d.own.Write(appendChunk(nil, chunk))
	return err
}

// EndSnapshot makes it durable, and the newest one.
func (d *Disk) EndSnapshot() error {
	w := d.own
	if w == nil {
		return fmt.Errorf("disk: no snapshot is being written")
	}
	d.own = nil
	defer w.Abort()
	return d.store.CreateSnapshot(w)
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

// maxEnded is how many snapshots are kept that may yet be wanted.
const maxEnded = 3

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

// End checks the whole against the sender's sum and gives the machine that it
// holds. It becomes the node's state only when the node says so, with a write
// that installs it.
func (in *Incoming) End(sum [sha256.Size]byte) (*core.Machine, error) {
	got, err := in.w.Sum()
	if err != nil {
		return nil, err
	}
	if got != sum {
		return nil, fmt.Errorf("disk: the snapshot at %d arrived damaged: its sum is %x, the sender's %x", in.w.Meta().Index, got, sum)
	}
	machine, err := in.restorer.Machine()
	if err == nil {
		in.d.keep(in)
	}
	return machine, err
}

// keep files a snapshot that is whole.
func (d *Disk) keep(in *Incoming) {
	if d.in != in {
		return // another has come instead
	}
	d.in, in.restorer = nil, nil
	if d.ended = append(d.ended, in); len(d.ended) > maxEnded {
		d.ended[0].w.Abort()
		d.ended = slices.Delete(d.ended, 0, 1)
	}
}

func (d *Disk) abortIncoming() {
	if d.in != nil {
		d.in.w.Abort()
		d.in = nil
	}
}

// install makes the received snapshot the beginning of the log.
func (d *Disk) install(w *replica.Write) error {
	at := slices.IndexFunc(d.ended, func(in *Incoming) bool { return in.w.Meta().Index == w.Install.Index })
	if at < 0 {
		return fmt.Errorf("disk: the snapshot at %d is not at hand", w.Install.Index)
	}
	defer d.dropUpTo(w.Install.Index)
	var b storage.Batch
	join(&b, w)
	return d.store.InstallSnapshot(d.ended[at].w, b)
}

// dropUpTo gives up snapshots that are no news any more.
func (d *Disk) dropUpTo(index uint64) {
	d.ended = slices.DeleteFunc(d.ended, func(in *Incoming) bool {
		old := in.w.Meta().Index <= index
		if old {
			in.w.Abort()
		}
		return old
	})
}
