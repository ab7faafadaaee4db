package redishold

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// askOnce is ask for a request that counts once however often it is sent. The
// server keeps its answer until a later request says that it has arrived.
func (c *client) askOnce(ctx context.Context, id [16]byte, name string, s *script, args ...string) ([]string, error) {
	request := hex.EncodeToString(id[:])
	acked := c.takeAcked(request)
	var list string
	for _, a := range acked {
		list += a
	}
	reply, err := c.ask(ctx, name, s, append([]string{c.id, request, list}, args...)...)
	if reply == nil {
		c.giveAcked(acked...)
		c.unanswered(request, err)
	} else {
		c.giveAcked(request)
	}
	return reply, err
}

// keptFor is how long an answer that did not arrive is of use after the last time that it was asked for: as long as the
// server remembers anything (prelude.lua). maxUnheard bounds how many requests a client remembers for that while its server is
// away: answers to others stay as long as the client asks something.
const (
	keptFor    = 10 * time.Minute
	maxUnheard = 1 << 14
)

// unanswered notes a request that the server may have an answer of: its caller may repeat it.
func (c *client) unanswered(request string, err error) {
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Outcome == driver.NotDone {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unheard == nil {
		c.unheard = map[string]time.Time{}
	}
	if len(c.unheard) < maxUnheard {
		c.unheard[request] = driver.Now()
	}
}

// giveUpUnheard has the server forget what was not answered long ago; it looks now and then. The client is locked.
func (c *client) giveUpUnheard() {
	now := driver.Now()
	if len(c.unheard) == 0 || now.Before(c.lookAt) {
		return
	}
	c.lookAt = now.Add(keptFor / 10)
	for request, at := range c.unheard {
		if now.Sub(at) > keptFor {
			c.acked = append(c.acked, request)
			delete(c.unheard, request)
		}
	}
}

const maxAcked = 64

// takeAcked is what the server can forget as request goes out, which may be asked for again.
func (c *client) takeAcked(request string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unheard, request)
	c.giveUpUnheard()
	n := min(len(c.acked), maxAcked)
	taken := append([]string(nil), c.acked[:n]...)
	c.acked = append(c.acked[:0], c.acked[n:]...)
	return taken
}

// giveAcked notes requests that the server can forget, and has it told if no request that follows does.
func (c *client) giveAcked(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acked = append(c.acked, ids...)
	if !c.acking && !c.closed && len(c.acked) > 0 {
		c.acking = true
		c.work.Go(c.tellAcked)
	}
}

// ackAfter is for how long requests may tell which answers have arrived before that is told by itself.
const ackAfter = time.Second

// tellAcked has the server forget the answers that have arrived. If it cannot be told, the next request has it tried again.
func (c *client) tellAcked() {
	select {
	case <-time.After(ackAfter):
	case <-c.life.Done():
		return
	}
	c.mu.Lock()
	ids := c.acked
	c.acked, c.acking = nil, false
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.life, patience)
	defer cancel()
	for part := range slices.Chunk(ids, maxAcked) {
		if err := c.rc.do(ctx, append([]string{"HDEL", c.key + "w:" + c.id}, part...))[0].err; err != nil {
			c.mu.Lock()
			c.acked = append(c.acked, part...)
			c.mu.Unlock()
		}
	}
}
