// Package disk keeps what a replica asks to be kept: it recovers a node from a
// storage directory, writes its log, and makes, sends and receives its
// snapshots.
//
// Like the packages that it joins it starts no goroutine and reads no clock, so
// that a simulation runs it over simulated files.
package disk

import (
	"errors"
	"fmt"
	"io"
	"math"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// Disk is an open directory of one node. One goroutine at a time may use it.
type Disk struct {
	store *storage.Store
	own   *storage.SnapshotWriter // being made of our own state
	only  bool                    // and it takes the place of all others
	in    *Incoming               // being received
	// dropped is the index of the last own one that made room for the log.
	dropped uint64
	ended   []*Incoming // received, and not yet wanted, in order
	copied  *storage.Copied

	// Wait is called when the log finds no room on the disk; true: look again. nil: the
	// write fails with storage.ErrNoRoom.
	Wait func() bool
}

// Open recovers the node in dir. A new directory begins with found, which all
// founders of a group share; without founders it waits for a leader to send it
// the state.
func Open(fsys storage.FS, dir string, o storage.Options, found replica.Recovered) (*Disk, replica.Recovered, error) {
	o.CacheBytes = 1 // a node has in memory what it wants of the log, and looks up nothing
	store, rec, err := storage.Open(fsys, dir, o)
	if err != nil {
		return nil, replica.Recovered{}, err
	}
	d := &Disk{store: store, copied: rec.Copied}
	node, err := d.recover(rec, found)
	if err != nil {
		store.Close()
		return nil, replica.Recovered{}, err
	}
	return d, node, nil
}

func (d *Disk) recover(rec storage.Recovered, found replica.Recovered) (replica.Recovered, error) {
	if rec.Snapshot.Index == 0 {
		if found.Snapshot.Index == 0 && rec.HardState != (storage.HardState{}) {
			found.HardState = raftHardState(rec.HardState) // it was to join, and has seen terms and voted
		}
		return found, d.begin(found)
	}
	meta, machine, err := d.newest()
	if err != nil {
		return found, err
	}
	node := replica.Recovered{Snapshot: meta, Machine: machine, HardState: raftHardState(rec.HardState), Doubted: rec.Doubted}
	for e, err := range d.store.Replay(meta.Index + 1) {
		if err != nil {
			return found, err
		}
		node.Entries = append(node.Entries, raftEntry(e))
	}
	return node, nil
}

// Found makes an empty directory one of a founder. It is what Open does with a
// state to begin with, for a node that had to ask others first.
func (d *Disk) Found(found replica.Recovered) error { return d.begin(found) }

// begin writes the state that a new group begins with. A node that joins later
// has none, and writes nothing.
func (d *Disk) begin(found replica.Recovered) error {
	if found.Snapshot.Index == 0 {
		return nil
	}
	w, err := d.newSnapshot(found.Snapshot)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := copyView(w, found.Machine); err != nil {
		return err
	}
	hs := storage.HardState{Term: found.Snapshot.Term, Commit: found.Snapshot.Index}
	return d.store.InstallSnapshot(w, storage.Batch{HardState: hs})
}

func copyView(w io.Writer, m *core.Machine) error {
	v := m.View()
	defer v.Close()
	for done := false; !done; {
		var chunk []byte
		chunk, done = v.Next(nil, 1<<20)
		if _, err := w.Write(appendChunk(nil, chunk)); err != nil {
			return err
		}
	}
	return nil
}

// newest restores the newest snapshot that the log goes on from and whose content makes a
// state. Of one that does not, nothing is used.
func (d *Disk) newest() (meta replica.SnapshotMeta, machine *core.Machine, err error) {
	for _, base := range d.store.Bases() {
		meta, machine, err = load(d.store, base)
		if !errors.Is(err, storage.ErrDamaged) {
			return meta, machine, err
		}
		_, err = d.store.Reject(base.Index, err)
	}
	return meta, nil, err
}

// load restores a snapshot.
func load(store *storage.Store, base storage.SnapshotMeta) (replica.SnapshotMeta, *core.Machine, error) {
	meta, err := metaOf(base)
	if err != nil {
		return meta, nil, fmt.Errorf("read the membership of the snapshot at %d: %w", base.Index, err)
	}
	r, err := store.OpenSnapshot(base.Index)
	if err != nil {
		return meta, nil, err
	}
	defer r.Close()
	machine, err := restore(r)
	if err != nil {
		return meta, nil, fmt.Errorf("restore the snapshot at %d: %w", base.Index, err)
	}
	return meta, machine, nil
}

// restore reads a snapshot to its end, where its checksum is compared: should it
// be wrong, that says more than what could not be made of the content.
func restore(r *storage.SnapshotReader) (*core.Machine, error) {
	restorer := core.NewRestorer()
	if _, err := io.Copy(&splitter{take: restorer.Write}, r); err != nil {
		if _, damaged := io.Copy(io.Discard, r); damaged != nil {
			return nil, damaged
		}
		return nil, unsound(err)
	}
	machine, err := restorer.Machine()
	return machine, unsound(err)
}

// unsound takes content that makes no state for damage. What a newer version wrote is none.
func unsound(err error) error {
	if errors.Is(err, core.ErrFrame) {
		return fmt.Errorf("%w: the checksum is right, and the content makes no state: %w", storage.ErrDamaged, err)
	}
	return err
}

// Write makes writes durable, with one sync where it can.
func (d *Disk) Write(writes []replica.Write) error {
	var b storage.Batch
	for i := range writes {
		w := &writes[i]
		do := func() error { return d.install(w) }
		switch {
		case w.Doubt:
			do = func() error { return d.patiently(d.store.Doubt) }
		case w.Install == nil:
			join(&b, w)
			continue
		}
		if err := d.flush(&b); err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
	}
	return d.flush(&b)
}

func (d *Disk) flush(b *storage.Batch) error {
	if b.HardState == (storage.HardState{}) && len(b.Entries) == 0 {
		return nil
	}
	err := d.patiently(func() error { return d.store.Append(*b) })
	*b = storage.Batch{}
	return err
}

// patiently writes what the log cannot do without, and waits for room: first for that of
// snapshots that are not whole, since nothing goes on with them meanwhile.
func (d *Disk) patiently(write func() error) error {
	err := write()
	for errors.Is(err, storage.ErrNoRoom) && (d.dropUnfinished() || d.Wait != nil && d.Wait()) {
		err = write()
	}
	return err
}

// dropUnfinished gives up the snapshots that are being made and received; false: there
// are none.
func (d *Disk) dropUnfinished() bool {
	if d.own == nil && d.in == nil {
		return false
	}
	if d.own != nil {
		d.dropped = d.own.Meta().Index
	}
	d.abortOwn()
	d.abortIncoming()
	return true
}

// join adds a write to a batch. Entries that overwrite earlier ones of the same
// batch take their place.
func join(b *storage.Batch, w *replica.Write) {
	if h := w.HardState; h != nil {
		b.HardState = storage.HardState{Term: h.GetTerm(), Vote: h.GetVote(), Commit: h.GetCommit()}
	}
	for _, e := range w.Entries {
		for n := len(b.Entries); n > 0 && b.Entries[n-1].Index >= e.GetIndex(); n-- {
			b.Entries = b.Entries[:n-1]
		}
		b.Entries = append(b.Entries, storage.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Type: uint8(e.GetType()), Data: e.GetData()})
	}
}

func raftHardState(h storage.HardState) *raftpb.HardState {
	return &raftpb.HardState{Term: new(h.Term), Vote: new(h.Vote), Commit: new(h.Commit)}
}

func raftEntry(e storage.Entry) *raftpb.Entry {
	return &raftpb.Entry{Index: new(e.Index), Term: new(e.Term), Type: raftpb.EntryType(e.Type).Enum(), Data: e.Data}
}

// Compact frees the log up to and with index.
func (d *Disk) Compact(index uint64) error { return d.store.Compact(index) }

// Directory tells this directory from every other.
func (d *Disk) Directory() uint64 { return d.store.Directory() }

// Renumber gives the node of an empty directory the number that a group gave it.
func (d *Disk) Renumber(node uint64) error { return d.store.Renumber(node) }

// Full reports that the directory has reached its soft limit, or that there was too
// little room beside it when it was last probed.
func (d *Disk) Full() bool { return d.store.Full() }

// Lack says in numbers why Full is true; "": it is not.
func (d *Disk) Lack() string { return d.store.Lack() }

// Probe looks how much room there is; it may run beside everything else.
func (d *Disk) Probe() { d.store.Probe() }

// Present ends the use of a directory that was removed or replaced, and says so; it may run
// beside everything else.
func (d *Disk) Present() error { return d.store.Present() }

// Mark vouches for the last record; call it when there is nothing else to do.
func (d *Disk) Mark() error { return d.store.Mark() }

// Close lets go of the directory.
func (d *Disk) Close() error {
	d.abortOwn()
	d.abortIncoming()
	d.dropUpTo(math.MaxUint64)
	return d.store.Close()
}
