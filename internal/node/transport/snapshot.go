package transport

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A snapshot's connection carries the meta as its first frame, the body as
// frames that are not empty, and an empty one at the end; then the receiver
// answers with one frame: empty if all went well, else what did not.

// SendSnapshot brings a snapshot to a peer on a connection of its own, and
// returns when the peer has taken it. That lasts as long as the peer needs to make a
// state of it, and answers at its door meanwhile.
func (t *Transport) SendSnapshot(to uint64, meta []byte, body io.Reader) error {
	p := t.peer(to)
	if p == nil {
		return fmt.Errorf("transport: node %d is not known here", to)
	}
	c, err := p.reach(forSnapshot)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := t.copyOut(c, meta, body); err != nil {
		return err
	}
	answer, err := t.answerOf(c, p)
	if err != nil {
		return err
	}
	if len(answer) > 0 {
		return fmt.Errorf("transport: node %d did not take the snapshot: %s", to, answer)
	}
	return nil
}

// maxMissed is how often in a row a peer that has a snapshot to take may not answer at its
// door before it is given up.
const maxMissed = 4

// answerOf waits for what a peer says of a snapshot. Its connection alone does not tell
// whether it still works on it: the kernel keeps that of a process that stands still.
func (t *Transport) answerOf(c net.Conn, p *peer) ([]byte, error) {
	over, gone := make(chan struct{}), make(chan struct{})
	defer close(over)
	go func() {
		if t.silent(p, over) {
			close(gone)
			c.Close()
		}
	}()
	answer, err := readFrame(c)
	select {
	case <-gone:
		return nil, fmt.Errorf("transport: node %d stands still with a snapshot that it has got: it does not answer at %s", p.id, cmp.Or(t.FoundAt(p.id), p.addr))
	default:
		return answer, err
	}
}

// silent knocks at a peer's door until over is closed; true: it did not answer any more.
func (t *Transport) silent(p *peer, over <-chan struct{}) bool {
	for missed := 0; missed < maxMissed; {
		select {
		case <-over:
			return false
		case <-time.After(t.cfg.Timeout):
		}
		if p.ping() != nil {
			missed++
			continue
		}
		missed = 0
	}
	return true
}

func (t *Transport) copyOut(c net.Conn, meta []byte, body io.Reader) error {
	send := func(p []byte) error {
		c.SetWriteDeadline(time.Now().Add(t.cfg.Timeout))
		_, err := c.Write(appendFrame(nil, p))
		return err
	}
	if err := send(meta); err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if err := send(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return send(nil)
		}
		if err != nil {
			return err
		}
	}
}

// serveSnapshot takes a snapshot from a peer.
func (t *Transport) serveSnapshot(c net.Conn, from uint64) {
	r := bufio.NewReaderSize(c, 256<<10)
	next := func() ([]byte, error) {
		c.SetReadDeadline(time.Now().Add(2 * t.cfg.Timeout))
		p, err := readFrame(r)
		if err == nil && len(p) == 0 {
			err = io.EOF
		}
		return p, err
	}
	meta, err := next()
	if err != nil {
		return
	}
	var answer []byte
	if err := t.cfg.Snapshot(from, meta, next); err != nil {
		answer = []byte(err.Error())
	}
	c.SetWriteDeadline(time.Now().Add(t.cfg.Timeout))
	c.Write(appendFrame(nil, answer))
	// Closed with something unread, the connection would be reset, and the
	// answer lost with it: of a large snapshot, which is not to be sent for nothing.
	for n := 0; len(answer) > 0 && err == nil && n < maxDrained; n++ {
		_, err = next()
	}
}

// maxDrained is how many pieces of a refused snapshot are read for the sake of the answer.
const maxDrained = 16
