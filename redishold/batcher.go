package redishold

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// batcher has calls that come while others are under way go together, in one
// pipeline: each by itself costs a write here, a read and a write there, and a
// read here. Some at a time still go at once; the further away the server is, the
// more, so that nobody waits long for a batch to leave.
type batcher struct {
	mu      sync.Mutex
	under   int // calls and batches that are under way
	waiting []*batchedCall
	spare   []*batchedCall // memory for the next list
	rtt     distance
}

// batchedCall is a call that waits for the others.
type batchedCall struct {
	command rueidis.Completed
	answer  chan rueidis.RedisResult // has room for it
}

var riders = sync.Pool{New: func() any { return &batchedCall{answer: make(chan rueidis.RedisResult, 1)} }}

// maxBatch is how many calls go together at most: the first is answered with
// the last.
const maxBatch = 128

// newBatcher is nil for a cluster: there the client has to see each call.
func newBatcher(rc rueidis.Client) *batcher {
	if rc.Mode() == rueidis.ClientModeCluster {
		return nil
	}
	return &batcher{}
}

func (c *batcher) do(ctx context.Context, rc rueidis.Client, command rueidis.Completed) rueidis.RedisResult {
	r := c.join(command)
	if r == nil {
		return c.alone(ctx, rc, command)
	}
	select {
	case answer := <-r.answer:
		r.command = rueidis.Completed{}
		riders.Put(r)
		return answer
	case <-ctx.Done():
		c.leave(r)
		return rueidis.NewErrorResult(ctx.Err())
	}
}

// join begins to wait; nil: it may go at once.
func (c *batcher) join(command rueidis.Completed) *batchedCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.under < c.rtt.ways() {
		c.under++
		return nil
	}
	r := riders.Get().(*batchedCall)
	r.command = command
	c.waiting = append(c.waiting, r)
	return r
}

// leave takes a call back; it may be under way by now.
func (c *batcher) leave(r *batchedCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(o *batchedCall) bool { return o == r })
}

// alone sends one command.
func (c *batcher) alone(ctx context.Context, rc rueidis.Client, command rueidis.Completed) rueidis.RedisResult {
	sent := time.Now()
	answer := rc.Do(ctx, command)
	took := time.Since(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer.NonRedisError() == nil {
		c.rtt.see(took)
	}
	c.next(rc)
	return answer
}

// carry sends commands together. It ends when the client answers, or is closed.
func (c *batcher) carry(rc rueidis.Client, all []*batchedCall) {
	commands := make(rueidis.Commands, len(all))
	for i, r := range all {
		commands[i] = r.command
	}
	for i, answer := range rc.DoMulti(context.Background(), commands...) {
		all[i].answer <- answer
	}
	clear(all)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spare = all[:0]
	c.next(rc)
}

// next lets the waiters go on; the lock is held.
func (c *batcher) next(rc rueidis.Client) {
	if len(c.waiting) == 0 {
		c.under--
		return
	}
	all := c.waiting
	c.waiting, c.spare = c.spare, nil
	if len(all) > maxBatch {
		c.waiting = append(c.waiting, all[maxBatch:]...)
		clear(all[maxBatch:])
		all = all[:maxBatch]
	}
	go c.carry(rc, all)
}

// distance is how far away a server is: the least time that one of the last
// commands took there and back.
type distance struct {
	least, before time.Duration // of this round of samples and of the one before; 0: none
	seen          int
}

const (
	perRound = 64
	// perWay is about how long a call waits for a batch to leave.
	perWay           = 50 * time.Microsecond
	minWays, maxWays = 2, 64
)

func (d *distance) see(took time.Duration) {
	if d.seen == perRound {
		d.before, d.least, d.seen = d.least, 0, 0
	}
	d.seen++
	if d.least == 0 || took < d.least {
		d.least = took
	}
}

// ways is how many calls and batches are under way at a time.
func (d *distance) ways() int {
	far := d.least
	if d.before > 0 && d.before < far {
		far = d.before
	}
	return min(max(int(far/perWay), minWays), maxWays)
}
