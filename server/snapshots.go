package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/transport"
)

// chunk is how much of a snapshot is taken from the machine at once: small
// enough that no command waits long for it.
const chunk = 256 << 10

// snapshots looks after what the node asks for about them, and about what the disk
// need not keep or has to vouch for.
func (l *loop) snapshots(out *replica.Output) {
	if out.Mark {
		l.disk.add(disk.Job{Run: (*disk.Disk).Mark, Then: l.must})
	}
	if out.Compact > 0 {
		index := out.Compact
		l.disk.add(disk.Job{Run: func(d *disk.Disk) error { return d.Compact(index) }, Then: func(err error) {
			if !errors.Is(err, storage.ErrNoRoom) { // the next one frees that, too
				l.must(err)
			}
		}})
	}
	if out.Snapshot != nil {
		meta := *out.Snapshot
		l.disk.add(disk.Job{Run: func(d *disk.Disk) error { return d.BeginSnapshot(meta) }, Then: l.unlessFull(meta.Index, l.nextChunk(meta.Index))})
	}
	for _, s := range out.SendSnapshots {
		go l.sendSnapshot(s)
	}
}

// must ends the node if the disk failed.
func (l *loop) must(err error) {
	if err != nil {
		l.post(func(in *inbox) { in.failure = err })
	}
}

// nextChunk is for the writer, which has taken the last chunk: the loop takes the
// next one from the machine.
func (l *loop) nextChunk(index uint64) func(error) {
	return l.then(func() { l.takeChunk(index) })
}

// then is for the writer: the loop does something if the disk has not failed.
func (l *loop) then(f func()) func(error) {
	return func(err error) {
		if err != nil {
			l.must(err)
			return
		}
		l.post(func(in *inbox) { in.todo = append(in.todo, f) })
	}
}

func (l *loop) takeChunk(index uint64) {
	c := l.node.SnapshotNext(index, nil, chunk)
	saved := false
	then := l.nextChunk(index)
	if c.Last {
		then = l.then(func() { l.node.SnapshotSaved(l.now(), index, saved) })
	}
	l.disk.add(disk.Job{Run: func(d *disk.Disk) (err error) { saved, err = d.SaveChunk(c); return err }, Then: l.unlessFull(index, then)})
}

// unlessFull gives the snapshot at index up if the disk has no room for it: the log goes
// on without it.
func (l *loop) unlessFull(index uint64, then func(error)) func(error) {
	return func(err error) {
		if errors.Is(err, storage.ErrNoRoom) {
			l.then(func() {
				l.node.SnapshotSaved(l.now(), index, false)
				l.refuseBackups()
			})(nil)
			return
		}
		then(err)
	}
}

// sendSnapshot brings the newest snapshot to a peer; raft must hear how it went.
func (l *loop) sendSnapshot(s replica.SendSnapshot) {
	err := l.streamSnapshot(s)
	l.post(func(in *inbox) {
		in.todo = append(in.todo, func() { l.node.SnapshotSent(l.now(), s.To, err == nil) })
	})
}

func (l *loop) streamSnapshot(s replica.SendSnapshot) error {
	r, err := l.disk.disk.OpenSnapshot(s.Index)
	if err != nil {
		return err
	}
	defer r.Close()
	return l.peers.SendSnapshot(s.To, encodeParcel(r.Meta(), r.Sum(), s.Message), r)
}

// A parcel is what goes before a snapshot: what it is of, its sum, and the raft
// message that announces it.
func encodeParcel(m storage.SnapshotMeta, sum [sha256.Size]byte, message []byte) []byte {
	b := []byte{1}
	b = binary.LittleEndian.AppendUint64(b, m.Index)
	b = binary.LittleEndian.AppendUint64(b, m.Term)
	b = append(b, sum[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Conf)))
	b = append(b, m.Conf...)
	return append(b, message...)
}

func decodeParcel(b []byte) (m storage.SnapshotMeta, sum [sha256.Size]byte, message []byte, err error) {
	const head = 1 + 8 + 8 + sha256.Size + 4
	if len(b) < head || b[0] != 1 {
		return m, sum, nil, errors.New("a snapshot of unknown form: run the same version on all nodes")
	}
	m.Index, m.Term = binary.LittleEndian.Uint64(b[1:]), binary.LittleEndian.Uint64(b[9:])
	copy(sum[:], b[17:])
	size := binary.LittleEndian.Uint32(b[head-4:])
	if uint64(size) > uint64(len(b)-head) {
		return m, sum, nil, errors.New("a snapshot's head is cut off")
	}
	m.Conf = bytes.Clone(b[head : head+int(size)])
	return m, sum, b[head+int(size):], nil
}

// noRoomPause is how long a peer waits for the word that its snapshot finds no room: it
// sends the next one at once.
const noRoomPause = 2 * time.Second

// receiveSnapshot takes a snapshot from a peer, unless the disk is full: one that stood
// behind a log which waits for room would keep its connection for as long, and the peer
// would send another every few seconds.
func (l *loop) receiveSnapshot(_ uint64, head []byte, next func() ([]byte, error)) error {
	err := error(storage.ErrNoRoom)
	if !l.disk.full() {
		err = l.takeSnapshot(head, next)
	}
	if errors.Is(err, storage.ErrNoRoom) {
		select {
		case <-time.After(noRoomPause):
		case <-l.stopped:
		}
	}
	return err
}

// takeSnapshot takes a snapshot, which becomes the node's state only if raft wants it.
func (l *loop) takeSnapshot(head []byte, next func() ([]byte, error)) error {
	if l.founding.asking.Load() {
		return errors.New("this node has yet to ask the other founders what it is")
	}
	meta, sum, message, err := decodeParcel(head)
	if err != nil {
		return err
	}
	var in *disk.Incoming
	if err := l.disk.do(func(d *disk.Disk) (err error) { in, err = d.Receive(meta); return err }); err != nil {
		return err
	}
	wanted, err := l.takeIn(in, sum, message, next)
	if !wanted {
		l.disk.add(disk.Job{Run: func(*disk.Disk) error { in.Abort(); return nil }, Then: func(error) {}})
	}
	return err
}

// takeIn takes a snapshot to its end, and asks the node whether it wants it.
func (l *loop) takeIn(in *disk.Incoming, sum [sha256.Size]byte, message []byte, next func() ([]byte, error)) (wanted bool, err error) {
	for {
		p, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, err
		}
		if err := l.disk.do(func(*disk.Disk) error { _, err := in.Write(p); return err }); err != nil {
			return false, err
		}
	}
	if err := l.disk.do(func(*disk.Disk) error { return in.End(sum) }); err != nil {
		return false, err
	}
	machine, err := in.Machine() // here, since the log must not wait for it
	if err != nil {
		if errors.Is(err, core.ErrVersion) {
			l.must(err) // without it this node can never go on
		}
		return false, err
	}
	return l.arrived(message, machine)
}

// arrived gives the node a snapshot that is whole. One that the node may have got
// when it stopped is kept.
func (l *loop) arrived(message []byte, machine *core.Machine) (wanted bool, err error) {
	done := make(chan struct{})
	ok := l.post(func(in *inbox) {
		in.todo = append(in.todo, func() {
			wanted, err = l.node.Arrived(l.now(), message, machine)
			close(done)
		})
	})
	if !ok {
		return false, errStopped
	}
	select {
	case <-done:
		return wanted, err
	case <-l.stopped:
		return true, errStopped
	}
}

// follow tells the transport that the membership has changed. A node that has
// yet to join knows none, and goes on with the addresses it was given.
func (l *loop) follow(out *replica.Output) {
	if out.Removed != nil {
		l.removed = out.Removed
	}
	members := out.Members
	switch {
	case l.peers == nil && members != nil:
		l.failed = alone(l.node.ID(), members)
	case members != nil && len(members.Endpoints) > 0:
		l.founding.empty.Store(false)
		l.lookFor(addresses(members.Endpoints))
	}
	if l.peers != nil && out.Version != 0 {
		l.peers.Raise(out.Version)
	}
	if l.peers != nil && (members != nil || out.Removed != nil) {
		known := l.node.Word().Members
		l.peers.Know(l.directories(), known.Coming()...)
	}
}

// lookFor has the transport look for the other nodes among these: of one that the group has where this node
// is, nothing is known but where operators say that it is.
func (l *loop) lookFor(nodes map[uint64]string) {
	others := map[uint64]string{}
	for id, addr := range nodes {
		switch {
		case l.itself(id):
		case l.here(addr):
			others[id] = ""
		default:
			others[id] = addr
		}
	}
	l.peers.SetPeers(others)
}

// directories are those that the group knows, and the numbers that are not to be
// heard any more.
func (l *loop) directories() map[uint64]uint64 {
	dirs := map[uint64]uint64{}
	for _, e := range l.node.Word().Members.Endpoints {
		dirs[e.ID] = e.Dir
	}
	for _, id := range l.removed {
		dirs[id] = transport.Removed
	}
	return dirs
}

func addresses(members []replica.Endpoint) map[uint64]string {
	addrs := map[uint64]string{}
	for _, e := range members {
		addrs[e.ID] = e.Peer
	}
	return addrs
}
