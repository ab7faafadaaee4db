package transport

import (
	"cmp"
	"context"
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

// Ask puts a question as a node that has no transport yet.
func Ask(cfg Config, id uint64, addr string, question []byte) ([]byte, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	t := &Transport{cfg: cfg, ctx: ctx, cancel: cancel, conns: map[net.Conn]caller{}}
	return t.Ask(id, addr, question)
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
