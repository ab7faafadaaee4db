package transport

import (
	"net"
	"time"
)

// Ask puts a question to the node at an address: also to one that is not a peer yet,
// or not the one that it was.
func (t *Transport) Ask(id uint64, addr string, question []byte) ([]byte, error) {
	c, err := t.dial(&peer{id: id, addr: addr}, forQuestion)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(t.cfg.Timeout))
	if _, err := c.Write(appendFrame(nil, question)); err != nil {
		return nil, err
	}
	return readFrame(c)
}

// serveQuestion answers one question of a node with the directory dir.
func (t *Transport) serveQuestion(c net.Conn, dir uint64) {
	c.SetDeadline(time.Now().Add(t.cfg.Timeout))
	question, err := readFrame(c)
	if err != nil || t.cfg.Word == nil {
		return
	}
	word, err := t.cfg.Word(dir, question)
	if err != nil {
		return
	}
	c.Write(appendFrame(nil, word))
}
