package disk_test

import (
	"errors"
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

// small is a disk of so many bytes.
type small struct {
	*simdisk.Disk
	room int
}

func (s *small) used() (sum int) {
	files, _ := s.List("data")
	for _, f := range files {
		sum += s.Bytes("data/" + f)
	}
	return sum
}

func (s *small) Create(name string) (storage.File, error) {
	f, err := s.Disk.Create(name)
	return smallFile{f, s}, err
}

func (s *small) Open(name string) (storage.File, error) {
	f, err := s.Disk.Open(name)
	return smallFile{f, s}, err
}

type smallFile struct {
	storage.File
	s *small
}

func (f smallFile) WriteAt(p []byte, off int64) (int, error) {
	size, err := f.Size()
	if grows := off + int64(len(p)) - size; err == nil && grows > 0 && f.s.used()+int(grows) > f.s.room {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(p, off)
}

// crowded is a node on a disk that is full but for the segments it has.
func crowded(t *testing.T) (*disk.Disk, *small) {
	t.Helper()
	s := &small{simdisk.New(), 1 << 30}
	d, _, err := disk.Open(s, "data", options, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	must(t, err)
	return d, s
}

func appending(from, to uint64) []replica.Write {
	return []replica.Write{{ID: 1, Entries: entriesOf(from, to), HardState: &raftpb.HardState{Term: new(uint64(1)), Commit: new(from)}, Sync: true}}
}

// The log does not wait for room that a snapshot has which is not whole: neither the one
// that the node makes nor the one that it receives goes on before the log does.
func TestLogTakesTheRoomOfUnfinishedSnapshots(t *testing.T) {
	p := newParcel(t)
	for _, own := range []bool{true, false} {
		d, s := crowded(t)
		must(t, d.Write(appending(2, 8)))
		if own {
			must(t, d.BeginSnapshot(replica.SnapshotMeta{Index: 4, Term: 1, Conf: p.node.Conf}))
			must(t, save(d, replica.Chunk{Index: 4, Data: make([]byte, 64<<10)}))
		} else {
			in, err := d.Receive(p.meta)
			must(t, err)
			_, err = in.Write(p.body[:len(p.body)/2])
			must(t, err)
		}
		s.room = s.used() + int(options.SegmentSize) - 100
		asked := 0
		d.Wait = func() bool { asked++; return false }
		if err := d.Write(appending(9, 10)); err != nil || asked > 0 {
			t.Errorf("own: %v: the log is answered %v, and asked %d times for room", own, err, asked)
		}
		if own {
			if saved, err := d.SaveChunk(replica.Chunk{Index: 4, Last: true}); saved || !errors.Is(err, storage.ErrNoRoom) {
				t.Errorf("the snapshot that made room is saved: %v, %v", saved, err)
			}
		}
		must(t, d.Close())
	}
}

// The installation of a leader's snapshot waits for room, and goes on when there is some.
func TestInstallWaitsForRoom(t *testing.T) {
	p := newParcel(t)
	d, s := crowded(t)
	receive(t, d, &p)
	asked, writes := 0, appending(p.node.Index+1, p.node.Index+24)
	writes[0].Install, writes[0].HardState.Commit = &p.node, &p.node.Index
	writes[0].HardState.Term = &p.node.Term
	for _, e := range writes[0].Entries {
		e.Term = &p.node.Term
	}
	s.room = s.used()
	d.Wait = func() bool {
		if asked++; asked == 3 {
			s.room = 1 << 30
		}
		return asked < 10
	}
	if err := d.Write(writes); err != nil || asked != 3 {
		t.Fatalf("it is answered %v after %d looks for room", err, asked)
	}
	must(t, d.Close())
	d, rec, err := disk.Open(s, "data", options, replica.Joining(core.Config{}))
	must(t, err)
	if rec.Snapshot.Index != p.node.Index || len(rec.Entries) != 24 {
		t.Errorf("a start finds the snapshot at %d and %d entries", rec.Snapshot.Index, len(rec.Entries))
	}
	must(t, d.Close())
}

// An installation goes on also if the last step is the one that finds no room, as where
// everything that is written needs some.
func TestInstallWaitsForRoomInItsLastStep(t *testing.T) {
	p := newParcel(t)
	for _, kind := range []string{"write", "sync"} {
		full, asked := false, 0
		files := &simdisk.Faults{FS: simdisk.New(), Check: func(op simdisk.Op) error {
			if full && op.Kind == kind && strings.Contains(op.Name, "tmp-") {
				return syscall.ENOSPC
			}
			return nil
		}}
		d, _, err := disk.Open(files, "data", options, replica.Joining(core.Config{}))
		must(t, err)
		receive(t, d, &p)
		full = true
		d.Wait = func() bool { asked++; full = asked < 3; return asked < 10 }
		if err := d.Write([]replica.Write{{ID: 1, Install: &p.node, Sync: true}}); err != nil || asked != 3 {
			t.Errorf("no room for a %s: it is answered %v after %d looks for room", kind, err, asked)
		}
		must(t, d.Close())
		d, rec, err := disk.Open(files, "data", options, replica.Joining(core.Config{}))
		must(t, err)
		if rec.Snapshot.Index != p.node.Index {
			t.Errorf("no room for a %s: a start finds the snapshot at %d", kind, rec.Snapshot.Index)
		}
		must(t, d.Close())
	}
}
