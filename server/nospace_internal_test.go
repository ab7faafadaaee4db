package server

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
	"github.com/holdfast-io/holdfast/internal/node/transport"
)

// stuck is the loop of a node with a log that waits for room, until full says otherwise.
func stuck(t *testing.T) (l *loop, d *disk.Disk, full *atomic.Bool) {
	t.Helper()
	full = &atomic.Bool{}
	files := &simdisk.Faults{FS: simdisk.New(), Check: func(o simdisk.Op) error {
		if full.Load() && (o.Kind == "create" || o.Kind == "write") {
			return syscall.ENOSPC
		}
		return nil
	}}
	d, _, err := disk.Open(files, "data", storage.Options{ClusterID: 1, NodeID: 1, SegmentSize: 64 << 10}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	l = lonely(t)
	l.tick, l.notice = 100*time.Millisecond, func(error) {}
	l.disk = newWriter(d, l.written)
	full.Store(true)
	l.disk.add(entries(2, 32<<10, 60<<10))
	return l, d, full
}

// entries is a write of entries of these sizes, from index on.
func entries(index uint64, sizes ...int) disk.Job {
	w := replica.Write{ID: index, Sync: true}
	for i, size := range sizes {
		w.Entries = append(w.Entries, &raftpb.Entry{Index: new(index + uint64(i)), Term: new(uint64(1)), Data: make([]byte, size)})
	}
	return disk.Job{Writes: []replica.Write{w}}
}

// A backup that has begun when the log finds no room any more says so after a moment, be it that it waits for the
// snapshot or for what the disk was asked for before: both stand behind the log.
func TestBackupWhileTheDiskFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, d, full := stuck(t)
		go l.obey(t.Context())
		for i, wait := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := l.snapshot(ctx); return err },
			l.settled,
		} {
			full.Store(false)
			if err := l.disk.do(func(*disk.Disk) error { return nil }); err != nil {
				t.Fatal(err)
			}
			at, told, began := make(chan struct{}), make(chan error, 1), time.Now()
			l.disk.add(disk.Job{Run: func(*disk.Disk) error { <-at; return nil }, Then: func(error) {}})
			l.disk.add(entries(uint64(4+i), 60<<10))
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				told <- wait(ctx)
			}()
			synctest.Wait() // it has begun while there was room
			full.Store(true)
			close(at)
			if err := <-told; !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "no room for a snapshot") || time.Since(began) > time.Second {
				t.Errorf("wait %d: after %s %v", i, time.Since(began), err)
			}
		}
		l.disk.close()
		d.Close()
	})
}

// obey does what the loop is asked for, in the place of a node that runs.
func (l *loop) obey(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-l.wake:
			in, _ := l.take()
			for _, f := range in.todo {
				f()
			}
		case <-ctx.Done():
		}
	}
}

// A snapshot for a node with a log that waits for room is refused after a moment: each would
// keep its connection until there is room, and the sender comes again.
func TestSnapshotWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, d, full := stuck(t)
		synctest.Wait()
		head := encodeParcel(storage.SnapshotMeta{Index: 9, Term: 1}, [32]byte{}, nil)
		var refused atomic.Int32
		for range 3 {
			go func() {
				if err := l.receiveSnapshot(2, head, func() ([]byte, error) { return nil, net.ErrClosed }); errors.Is(err, storage.ErrNoRoom) {
					refused.Add(1)
				}
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := refused.Load(); n != 3 {
			t.Errorf("%d of 3 snapshots were refused", n)
		}
		full.Store(false)
		time.Sleep(time.Second)
		if err := l.receiveSnapshot(2, head, func() ([]byte, error) { return nil, net.ErrClosed }); !errors.Is(err, net.ErrClosed) {
			t.Errorf("with room again: %v", err)
		}
		l.disk.close()
		d.Close()
	})
}

// measured is a disk of which as much is free as it says.
type measured struct {
	*simdisk.Disk
	free int64
}

func (m *measured) Free(string) (int64, error) { return m.free, nil }

// What is told once a minute of a full disk has the numbers of that minute.
func TestFullDiskIsToldAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := &measured{Disk: simdisk.New(), free: 30 << 20}
		d, _, err := disk.Open(files, "data", storage.Options{ClusterID: 1, NodeID: 1, Reserve: 64 << 20}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		l, s, told := lonely(t), &Server{}, []string(nil)
		s.cfg.Notice = func(err error) { told = append(told, err.Error()) }
		l.notice, l.disk = s.notice, newWriter(d, l.written)
		defer l.disk.close()
		for range 150 {
			d.Probe()
			l.setFull(d.Full())
			l.tellFull()
			files.free -= 10 << 10
			time.Sleep(time.Second)
		}
		if len(told) != 3 {
			t.Fatalf("told %d times in 150 s: %q", len(told), told)
		}
		for i, want := range []string{"(30.0 MiB of", "(29.4 MiB of", "(28.8 MiB of"} {
			if !strings.Contains(told[i], want) {
				t.Errorf("%q does not have %q", told[i], want)
			}
		}
	})
}

// A node can be stopped while its log waits for room, whatever waits behind the log for a peer.
func TestCloseWithoutRoom(t *testing.T) {
	l, d, _ := stuck(t)
	asked := make(chan struct{})
	listen := func() net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	at := listen()
	none := func(uint64) {}
	var err error
	if l.peers, err = transport.New(transport.Config{ID: 1, Unreachable: none, Word: func(uint64, []byte) ([]byte, error) {
		close(asked)
		return nil, l.disk.do(func(*disk.Disk) error { return nil })
	}}, at); err != nil {
		t.Fatal(err)
	}
	other, err := transport.New(transport.Config{ID: 2, Unreachable: none}, listen())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go other.Ask(1, at.Addr().String(), []byte("?"))
	<-asked
	go l.run()
	closed := make(chan error, 1)
	go func() { closed <- (&Server{loop: l, disk: d}).Close() }()
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Fatal("it does not stop")
	}
}
