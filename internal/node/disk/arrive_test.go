package disk_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// parcel is a snapshot as a peer sends it, with 20 entries in it.
type parcel struct {
	node replica.SnapshotMeta
	meta storage.SnapshotMeta
	sum  [sha256.Size]byte
	body []byte
}

func newParcel(t *testing.T) parcel { return newParcelOf(t, 1) }

// newParcelOf has so many counters in each entry, with names of their own.
func newParcelOf(t *testing.T, counters int) parcel {
	t.Helper()
	n := run(t, simdisk.New(), "data", options, replica.Endpoint{ID: 1})
	n.do(1, open())
	for entry := range 20 {
		all := []core.Command{add()}
		for i := 1; i < counters; i++ {
			all = append(all, core.Command{Op: core.OpCount, Name: fmt.Sprint("orders of ", entry, i), Count: core.CountAdd, A: 1})
		}
		n.do(1, all...)
	}
	r, err := n.disk.OpenSnapshot(n.r.Status().SnapshotIndex)
	must(t, err)
	defer r.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(r)
	must(t, err)
	conf, err := replica.DecodeMembership(r.Meta().Conf)
	must(t, err)
	return parcel{replica.SnapshotMeta{Index: r.Meta().Index, Term: r.Meta().Term, Conf: conf}, r.Meta(), r.Sum(), body.Bytes()}
}

// receive takes a parcel to its end.
func receive(t *testing.T, d *disk.Disk, p *parcel) *disk.Incoming {
	t.Helper()
	in, err := d.Receive(p.meta)
	must(t, err)
	_, err = in.Write(p.body)
	must(t, err)
	must(t, in.End(p.sum))
	return in
}

// joining is the disk of a node that waits for a leader's snapshot.
func joining(t *testing.T) (*disk.Disk, *simdisk.Disk) {
	t.Helper()
	files := simdisk.New()
	d, _, err := disk.Open(files, "data", storage.Options{ClusterID: 1, NodeID: 2, SegmentSize: 16 << 10}, replica.Joining(core.Config{}))
	must(t, err)
	return d, files
}

// A snapshot that has come whole can be installed also if another has begun to
// come meanwhile: raft wanted the first before it heard of the second.
func TestInstall_WhileAnotherComes(t *testing.T) {
	p := newParcel(t)
	d, _ := joining(t)
	defer d.Close()
	receive(t, d, &p)
	_, err := d.Receive(p.meta)
	must(t, err)
	must(t, d.Write([]replica.Write{{ID: 1, Install: &p.node, Sync: true}}))
}

// A node that makes a snapshot of its own when a leader's is installed goes on:
// its own is void, whether the machine gave its last chunk before or after that.
func TestInstall_WhileOwnIsMade(t *testing.T) {
	for _, begun := range []bool{true, false} {
		p := newParcel(t)
		d, files := joining(t)
		entries := []*raftpb.Entry{{Index: new(uint64(1)), Term: new(uint64(1))}, {Index: new(uint64(2)), Term: new(uint64(1))}}
		must(t, d.Write([]replica.Write{{ID: 1, Entries: entries, HardState: &raftpb.HardState{Term: new(uint64(1))}, Sync: true}}))
		receive(t, d, &p)
		own := replica.SnapshotMeta{Index: 2, Term: 1, Conf: p.node.Conf}
		if begun {
			must(t, d.BeginSnapshot(own))
			_, err := d.SaveChunk(replica.Chunk{Index: 2, Data: []byte("half")})
			must(t, err)
		}
		must(t, d.Write([]replica.Write{{ID: 2, Install: &p.node, Sync: true}}))
		if !begun {
			must(t, d.BeginSnapshot(own))
		}
		saved, err := d.SaveChunk(replica.Chunk{Index: 2, Last: true})
		if saved || err != nil {
			t.Errorf("begun before: %v: saved %v, %v; want neither", begun, saved, err)
		}
		must(t, d.Close())
		for _, f := range temps(t, files) {
			t.Errorf("begun before: %v: %s is left over", begun, f)
		}
	}
}

// A chunk of a snapshot that nobody began is a mistake of the caller.
func TestSaveChunk_OfNothing(t *testing.T) {
	d, _ := joining(t)
	defer d.Close()
	if saved, err := d.SaveChunk(replica.Chunk{Index: 7, Last: true}); saved || err == nil {
		t.Errorf("saved %v, %v; want an error", saved, err)
	}
}

// What was damaged on its way is refused, whichever bit it is: of the state, or of
// what is said of it.
func TestArrive_Damaged(t *testing.T) {
	p := newParcel(t)
	d, files := joining(t)
	defer d.Close()
	take := func(what string) {
		in, err := d.Receive(p.meta)
		must(t, err)
		if _, err = in.Write(p.body); err == nil {
			err = in.End(p.sum)
		}
		if err == nil {
			t.Errorf("%s is wrong, and the snapshot was taken", what)
		}
		in.Abort()
	}
	for what, b := range map[string][]byte{"the state": p.body, "the membership": p.meta.Conf, "the sum": p.sum[:]} {
		for bit := range len(b) * 8 {
			b[bit/8] ^= 1 << (bit % 8)
			take(fmt.Sprintf("bit %d of %s", bit, what))
			b[bit/8] ^= 1 << (bit % 8)
		}
	}
	for what, n := range map[string]*uint64{"index": &p.meta.Index, "term": &p.meta.Term} {
		*n++
		take("the " + what)
		*n--
	}
	if left := temps(t, files); len(left) > 0 {
		t.Errorf("%q are left over", left)
	}
	receive(t, d, &p)
}

// The disk is not held up in proportion to what has arrived: the machine is built beside
// it, and is the sender's.
func TestEnd_OfMuch(t *testing.T) {
	cost := func(counters int) float64 {
		p := newParcelOf(t, counters)
		var all []*disk.Incoming
		for range 2 {
			d, _ := joining(t)
			defer d.Close()
			in, err := d.Receive(p.meta)
			must(t, err)
			_, err = in.Write(p.body)
			must(t, err)
			all = append(all, in)
		}
		next := 0
		allocs := testing.AllocsPerRun(1, func() {
			must(t, all[next].End(p.sum))
			next++
		})
		m, err := all[0].Machine()
		must(t, err)
		if got := m.Read("", &core.Command{Op: core.OpCount, Name: "orders", Unsigned: true}).Number; got == 0 {
			t.Error("the machine has no orders")
		}
		return allocs
	}
	if few, many := cost(1), cost(100); many > few+20 {
		t.Errorf("the end of a snapshot with 20 counters takes %v allocations, with 2,000 %v", few, many)
	}
}

// What does not come to its end, is not wanted or was overtaken leaves no file.
func TestIncoming_Abort(t *testing.T) {
	p := newParcel(t)
	d, files := joining(t)
	defer d.Close()
	half, err := d.Receive(p.meta)
	must(t, err)
	whole := receive(t, d, &p)
	if err := half.End(p.sum); err == nil {
		t.Error("a snapshot that was overtaken came to its end")
	}
	half.Abort()
	if left := temps(t, files); len(left) != 1 {
		t.Errorf("%q are there, want the one that is whole", left)
	}
	whole.Abort()
	if left := temps(t, files); len(left) > 0 {
		t.Errorf("%q are left over", left)
	}
}

// temps are the unfinished files.
func temps(t *testing.T, files *simdisk.Disk) (all []string) {
	t.Helper()
	names, err := files.List("data")
	must(t, err)
	for _, name := range names {
		if strings.HasPrefix(name, "tmp-") {
			all = append(all, name)
		}
	}
	return all
}

// A snapshot that is to be the only one takes the place of all others, also of one with
// its index; if a leader's that is newer has been installed meanwhile, it is void.
func TestOnlySnapshot(t *testing.T) {
	for _, newer := range []bool{false, true} {
		p := newParcel(t)
		d, files := joining(t)
		receive(t, d, &p)
		must(t, d.Write([]replica.Write{{ID: 1, Install: &p.node, Sync: true}, {ID: 2, Doubt: true, Sync: true}}))
		own := replica.SnapshotMeta{Index: p.node.Index, Term: p.node.Term, Conf: p.node.Conf, Only: true}
		if newer {
			own.Index--
		}
		other := core.New(core.Config{})
		must(t, other.Apply(core.AppendEntry(nil, &core.Entry{Now: 77}), nil))
		must(t, d.BeginSnapshot(own))
		data, last := other.View().Next(nil, 1<<20)
		saved, err := d.SaveChunk(replica.Chunk{Index: own.Index, Data: data, Last: last})
		must(t, err)
		must(t, d.Close())
		d, rec, err := disk.Open(files, "data", storage.Options{ClusterID: 1, NodeID: 2, SegmentSize: 16 << 10}, replica.Joining(core.Config{}))
		must(t, err)
		if rec.Doubted != newer {
			t.Errorf("a newer one: %v: the state is doubted: %v", newer, rec.Doubted)
		}
		if !last || saved == newer || (rec.Machine.Now() == 77) == newer || rec.Snapshot.Index != p.node.Index {
			t.Errorf("a newer one: %v: saved: %v; at %d a start finds time %d", newer, saved, rec.Snapshot.Index, rec.Machine.Now())
		}
		must(t, d.Close())
	}
}
