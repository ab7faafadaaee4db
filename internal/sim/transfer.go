package sim

import (
	"errors"

	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// transfer is a snapshot on its way from a peer.
type transfer struct {
	meta    storage.SnapshotMeta
	sum     [32]byte
	body    []byte // what is left of it
	message []byte
	damaged bool          // on its way
	over    func(ok bool) // tells the sender
	in      *disk.Incoming
}

// flip turns a bit of what is sent: of the membership, or of the state.
func (t *transfer) flip(w *world) {
	b := t.body
	if w.chance(0.5) {
		b = t.meta.Conf
	}
	bit := w.rng.IntN(len(b) * 8)
	b[bit/8] ^= 1 << (bit % 8)
	t.damaged = true
}

// receive takes a snapshot from a peer, piece by piece: other jobs come in
// between, of another transfer too, which takes its place.
func (n *node) receive(t *transfer) {
	n.incoming = t
	n.add(disk.Job{Run: func(d *disk.Disk) (err error) { t.in, err = d.Receive(t.meta); return err }, Then: n.goOn(t, n.piece)})
}

// piece takes the next piece of a transfer, or ends it.
func (n *node) piece(t *transfer) {
	if len(t.body) == 0 {
		n.end(t)
		return
	}
	p := t.body[:min(len(t.body), 1500)]
	t.body = t.body[len(p):]
	n.add(disk.Job{Run: func(*disk.Disk) error { _, err := t.in.Write(p); return err }, Then: n.goOn(t, n.piece)})
}

// end gives the node what a transfer has brought.
func (n *node) end(t *transfer) {
	arrived := func(t *transfer) {
		machine, err := t.in.Machine()
		if err != nil {
			n.goOn(t, nil)(err)
			return
		}
		n.input(func() {
			wanted, err := n.replica.Arrived(n.now(), t.message, machine)
			if err != nil {
				n.c.violate("node %d refuses a snapshot: %v", n.id, err)
			}
			if wanted {
				n.c.res.Installs++
			} else {
				n.add(disk.Job{Run: func(*disk.Disk) error { t.in.Abort(); return nil }, Then: func(error) {}})
			}
			t.over(true)
		})
		if t.damaged {
			n.c.violate("node %d takes a snapshot that was damaged on its way", n.id)
		}
	}
	n.add(disk.Job{Run: func(*disk.Disk) error { return t.in.End(t.sum) }, Then: n.goOn(t, arrived)})
}

// goOn goes on with a transfer if the last step went well. It may fail if it was
// damaged on its way, or if another took its place.
func (n *node) goOn(t *transfer, next func(*transfer)) func(error) {
	return func(err error) {
		switch {
		case err == nil:
			next(t)
			return
		case errors.Is(err, errNoSpace) || n.incoming == t && !t.damaged:
			n.failed(err)
		case t.in != nil:
			t.in.Abort()
		}
		t.over(false)
	}
}
