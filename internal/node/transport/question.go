package transport

import (
	"net"
	"time"
)

// Ask asks the node at an address for its word: also one that is not a peer yet, or
// not the one that it was.
func (t *Transport) Ask(id uint64, addr string) ([]byte, error) {
	c, err := t.dial(&peer{id: id, addr: addr}, forQuestion)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(t.cfg.Timeout))
	return readFrame(c)
}

// serveQuestion gives this node's word.
func (t *Transport) serveQuestion(c net.Conn) {
	if t.cfg.Word == nil {
		return
	}
	word, err := t.cfg.Word()
	if err != nil {
		return
	}
	c.SetWriteDeadline(time.Now().Add(t.cfg.Timeout))
	c.Write(appendFrame(nil, word))
}
