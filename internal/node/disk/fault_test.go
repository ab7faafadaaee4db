package disk_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// entriesOf are entries of term 1.
func entriesOf(from, to uint64) (all []*raftpb.Entry) {
	for i := from; i <= to; i++ {
		all = append(all, &raftpb.Entry{Index: new(i), Term: new(uint64(1)), Data: make([]byte, 3000)})
	}
	return all
}

// life is what a node does with its directory: it founds a group, writes, makes a
// snapshot, compacts and takes a leader's snapshot. It ends with the first error,
// or when a step says nothing of a fault that it hit.
func life(fsys storage.FS, p *parcel, hit func() bool) (err error) {
	d, _, err := disk.Open(fsys, "data", options, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for _, step := range []func() error{
		func() error {
			return d.Write([]replica.Write{{ID: 1, Entries: entriesOf(2, 12), HardState: &raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(12))}, Sync: true}})
		},
		func() error { return d.BeginSnapshot(replica.SnapshotMeta{Index: 8, Term: 1, Conf: p.node.Conf}) },
		func() error { return save(d, replica.Chunk{Index: 8, Data: make([]byte, 100)}) },
		func() error { return save(d, replica.Chunk{Index: 8, Last: true}) },
		func() error { return d.Compact(8) },
		func() error { return arrive(d, p) },
		func() error {
			return d.Write([]replica.Write{
				{ID: 2, Entries: entriesOf(13, 13)},
				{ID: 3, Install: &p.node, HardState: &raftpb.HardState{Term: new(uint64(3)), Vote: new(uint64(2)), Commit: &p.node.Index}},
				{ID: 4, Entries: entriesOf(p.node.Index+1, p.node.Index+3), Sync: true},
			})
		},
	} {
		if err := step(); err != nil {
			return err
		}
		if hit() {
			return errSilent
		}
	}
	return nil
}

// save adds a chunk; the snapshot is saved with the last one, and not before.
func save(d *disk.Disk, c replica.Chunk) error {
	saved, err := d.SaveChunk(c)
	if err == nil && saved != c.Last {
		return errSilent
	}
	return err
}

// arrive takes a parcel to its end.
func arrive(d *disk.Disk, p *parcel) error {
	in, err := d.Receive(p.meta)
	if err != nil {
		return err
	}
	if _, err := in.Write(p.body); err != nil {
		return err
	}
	if err := in.End(p.sum); err != nil {
		return err
	}
	machine, err := in.Machine()
	if err == nil && machine == nil {
		return errSilent
	}
	return err
}

// again starts a node from its directory.
func again(fsys storage.FS, p *parcel) error {
	d, rec, err := disk.Open(fsys, "data", options, replica.Joining(core.Config{}))
	if err != nil {
		return err
	}
	if rec.Machine == nil || rec.Snapshot.Index != p.node.Index || len(rec.Entries) != 3 || rec.HardState.GetTerm() != 3 || rec.HardState.GetVote() != 2 {
		return errors.Join(errSilent, d.Close())
	}
	return d.Close()
}

var errSilent = errors.New("something is missing, and nothing was said")

// later is a node that founds a group when it has asked the others.
func later(fsys storage.FS) error {
	d, _, err := disk.Open(fsys, "data", options, replica.Joining(core.Config{}))
	if err != nil {
		return err
	}
	if err := errors.Join(d.Found(replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}})), d.Close()); err != nil {
		return err
	}
	d, rec, err := disk.Open(fsys, "data", options, replica.Joining(core.Config{}))
	if err != nil {
		return err
	}
	if rec.Snapshot.Index == 0 {
		return errors.Join(errSilent, d.Close())
	}
	return d.Close()
}

// No failure of the disk goes unnoticed: whichever operation fails, the call that
// needed it says so.
func TestEveryFaultIsTold(t *testing.T) {
	p := newParcel(t)
	whole := simdisk.New()
	must(t, life(whole, &p, func() bool { return false }))
	tellsAll(t, func(check func(simdisk.Op) error, hit func() bool) error {
		return life(&simdisk.Faults{FS: simdisk.New(), Check: check}, &p, hit)
	})
	tellsAll(t, func(check func(simdisk.Op) error, _ func() bool) error {
		return again(&simdisk.Faults{FS: whole.Clone(), Check: check}, &p)
	})
	tellsAll(t, func(check func(simdisk.Op) error, _ func() bool) error {
		return later(&simdisk.Faults{FS: simdisk.New(), Check: check})
	})
	left := simdisk.New()
	must(t, survivor(t, left))
	tellsAll(t, func(check func(simdisk.Op) error, _ func() bool) error {
		_, err := disk.ForceNewCluster(&simdisk.Faults{FS: left.Clone(), Check: check}, "survivor", anew("new", 0))
		return err
	})
}

// An installed snapshot takes what came before it, whole or not, off the disk.
func TestInstall_DropsOlder(t *testing.T) {
	p := newParcel(t)
	d, files := joining(t)
	defer d.Close()
	receive(t, d, &p)
	receive(t, d, &p)
	must(t, d.Write([]replica.Write{{ID: 1, Install: &p.node, Sync: true}}))
	if got := temps(t, files); len(got) != 0 {
		t.Errorf("%v are left over", got)
	}
}

// tellsAll has each operation fail in turn.
func tellsAll(t *testing.T, do func(check func(simdisk.Op) error, hit func() bool) error) {
	t.Helper()
	for k := 1; ; k++ {
		var hit simdisk.Op
		err := do(func(op simdisk.Op) error {
			if op.N == k {
				hit = op
				return syscall.EIO
			}
			return nil
		}, func() bool { return hit.N > 0 })
		if hit.N == 0 {
			must(t, err)
			return
		}
		unneeded := hit.Name == "survivor/LOCK" || // its medium may be for reading only
			hit.Name == "data/snap-0000000000000008" && !hit.Writes() // the newer one is there
		if !unneeded && err == nil || errors.Is(err, errSilent) {
			t.Errorf("operation %d, %s %s, failed, and the answer is %v", k, hit.Kind, hit.Name, err)
		}
	}
}

// Compact gives back the files of entries that a snapshot holds.
func TestCompact(t *testing.T) {
	p := newParcel(t)
	d, files := joining(t)
	defer d.Close()
	must(t, d.Write([]replica.Write{{ID: 1, Entries: entriesOf(1, 20), HardState: &raftpb.HardState{Term: new(uint64(1))}, Sync: true}}))
	must(t, d.BeginSnapshot(replica.SnapshotMeta{Index: 20, Term: 1, Conf: p.node.Conf}))
	must(t, save(d, replica.Chunk{Index: 20, Last: true}))
	const first = "data/log-0000000000000001"
	if files.Bytes(first) == 0 {
		t.Fatalf("there is no %s", first)
	}
	must(t, d.Compact(20))
	if names, err := files.List("data"); err != nil || slices.Contains(names, "log-0000000000000001") {
		t.Errorf("the files are %v, %v", names, err)
	}
}

// A snapshot that is not there is not installed.
func TestInstall_OfNothing(t *testing.T) {
	p := newParcel(t)
	d, _ := joining(t)
	defer d.Close()
	if err := d.Write([]replica.Write{{ID: 1, Install: &p.node, Sync: true}}); err == nil || !strings.Contains(err.Error(), "not at hand") {
		t.Errorf("got %v", err)
	}
}

// What was given up cannot come to its end.
func TestIncoming_EndAfterAbort(t *testing.T) {
	p := newParcel(t)
	d, _ := joining(t)
	defer d.Close()
	in, err := d.Receive(p.meta)
	must(t, err)
	_, err = in.Write(p.body)
	must(t, err)
	in.Abort()
	if err := in.End(p.sum); err == nil || !strings.Contains(err.Error(), "another snapshot has come") {
		t.Errorf("got %v", err)
	}
}

// A snapshot does not come to its end on a disk that has failed meanwhile.
func TestIncoming_EndOnFailedDisk(t *testing.T) {
	p := newParcel(t)
	var failing error
	files := &simdisk.Faults{FS: simdisk.New(), Check: func(op simdisk.Op) error { return failing }}
	d, _, err := disk.Open(files, "data", options, replica.Joining(core.Config{}))
	must(t, err)
	defer d.Close()
	in, err := d.Receive(p.meta)
	must(t, err)
	_, err = in.Write(p.body)
	must(t, err)
	failing = syscall.EIO
	if err := d.Write([]replica.Write{{ID: 1, Entries: entriesOf(1, 2), Sync: true}}); err == nil {
		t.Fatal("a write to a failing disk is said to be done")
	}
	failing = nil
	if err := in.End(p.sum); err == nil {
		t.Error("the snapshot was taken")
	}
}

// Garbage is refused when it arrives, not only at the end: it could ask for any
// amount of memory.
func TestIncoming_Garbage(t *testing.T) {
	p := newParcel(t)
	d, _ := joining(t)
	defer d.Close()
	in, err := d.Receive(p.meta)
	must(t, err)
	if _, err := in.Write(bytes.Repeat([]byte{0xff}, 16)); err == nil {
		t.Error("garbage was taken")
	}
}

// A snapshot with a membership that this program cannot read is refused at the
// start, also by the commands that begin from what is left.
func TestUnknownMembership(t *testing.T) {
	p := newParcel(t)
	p.meta.Conf = []byte{99}
	files := simdisk.New()
	store, _, err := storage.Open(files, "data", options)
	must(t, err)
	w, err := store.NewSnapshot(p.meta)
	must(t, err)
	_, err = w.Write(p.body)
	must(t, err)
	must(t, store.InstallSnapshot(w, storage.Batch{HardState: storage.HardState{Term: p.meta.Term, Commit: p.meta.Index}}))
	must(t, store.Close())
	if _, _, err := disk.Open(files, "data", options, replica.Joining(core.Config{})); err == nil || !strings.Contains(err.Error(), "older than the one that wrote it") {
		t.Errorf("start: %v", err)
	}
	if _, err := disk.ForceNewCluster(files, "data", anew("new", 0)); err == nil || !strings.Contains(err.Error(), "older than the one that wrote it") {
		t.Errorf("force a new cluster: %v", err)
	}
}

// A damaged survivor is told what to do.
func TestForceNewCluster_Damaged(t *testing.T) {
	files := simdisk.New()
	must(t, survivor(t, files))
	hurt(files, "survivor/log-0000000000000001")
	if _, err := disk.ForceNewCluster(files, "survivor", anew("new", 0)); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("got %v", err)
	}
}

// Closing leaves no unfinished snapshot behind, neither the node's own nor a
// leader's, begun or whole.
func TestClose_Unfinished(t *testing.T) {
	p := newParcel(t)
	d, files := joining(t)
	must(t, d.Write([]replica.Write{{ID: 1, Entries: entriesOf(1, 2), HardState: &raftpb.HardState{Term: new(uint64(1))}, Sync: true}}))
	must(t, d.BeginSnapshot(replica.SnapshotMeta{Index: 2, Term: 1, Conf: p.node.Conf}))
	must(t, arrive(d, &p))
	_, err := d.Receive(p.meta)
	must(t, err)
	if got := temps(t, files); len(got) != 3 {
		t.Fatalf("unfinished are %v, want three", got)
	}
	must(t, d.Close())
	if got := temps(t, files); len(got) != 0 {
		t.Errorf("%v are left over", got)
	}
}

// Entries that overwrite earlier ones of the same batch take their place.
func TestWrite_OverwrittenInOneBatch(t *testing.T) {
	files := simdisk.New()
	d, _, err := disk.Open(files, "data", options, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	must(t, err)
	newer := &raftpb.Entry{Index: new(uint64(3)), Term: new(uint64(2))}
	must(t, d.Write([]replica.Write{{ID: 1, Entries: entriesOf(2, 6)}, {ID: 2, Entries: []*raftpb.Entry{newer}, Sync: true}}))
	must(t, d.Close())
	d, rec, err := disk.Open(files, "data", options, replica.Joining(core.Config{}))
	must(t, err)
	defer d.Close()
	if len(rec.Entries) != 2 || rec.Entries[1].GetTerm() != 2 {
		t.Errorf("got %v", rec.Entries)
	}
}
