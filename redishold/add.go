package redishold

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// adder is what a client knows of counters, so that it can add to them by
// INCRBY alone. Guarded by the client's lock.
type adder struct {
	seen    map[string]time.Time // when a script last found the counter there
	watched time.Time            // when somebody last watched
}

const (
	// trustFor is how long a counter is taken to be one after a script found it:
	// less than a deleted one is marked as such, so that INCRBY cannot make it
	// again under a name that has become something else.
	trustFor = 5 * time.Minute
	// maxSeen bounds the memory for it.
	maxSeen = 1024
)

// counterKey is where a counter is kept.
func (c *client) counterKey(r *driver.CountRequest) string {
	if r.Unsigned {
		return c.key + "u:" + r.Name
	}
	return c.key + "n:" + r.Name
}

// found notes that a script found or made the counter.
func (c *client) found(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.adds.seen == nil || len(c.adds.seen) >= maxSeen {
		c.adds.seen = map[string]time.Time{}
	}
	c.adds.seen[key] = driver.Now()
}

// mayAdd: the counter is there, and nobody has watched for a while: with a
// watcher a script is quicker.
func (c *client) mayAdd(key string) bool {
	now := driver.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.adds.seen[key]
	return ok && now.Sub(at) < trustFor && now.Sub(c.adds.watched) > watchFor
}

// incrBy changes a counter without a script, and so without a record by which a
// repetition would be known: only for requests that nobody repeats. An unsigned
// counter has a zero of its own, which INCRBY does not know if the server has
// forgotten it, and to add 0 is told only if it makes the counter, which a script knows. false: it has to be a script after all, and nothing has happened.
func (c *client) incrBy(ctx context.Context, r *driver.CountRequest) (driver.CountReply, bool, error) {
	if !r.Once || r.Unsigned || r.A == 0 || r.Op != driver.CountAdd && r.Op != driver.CountSub {
		return driver.CountReply{}, false, nil
	}
	key, parts := c.counterKey(r), change(r)
	if len(parts) > 1 || !c.mayAdd(key) {
		return driver.CountReply{}, false, nil
	}
	if err := c.begin(ctx); err != nil {
		return driver.CountReply{}, true, err
	}
	// A watch that begins says so first: if nobody has by the second command,
	// nobody had at the first.
	results := c.rc.do(ctx, []string{"INCRBY", key, parts[0]}, []string{"EXISTS", c.key + "watch"})
	if uncounted(results[0].err) {
		return driver.CountReply{}, false, nil
	}
	if err := results[0].err; err != nil {
		return driver.CountReply{}, true, failure(ctx, err)
	}
	in := reader{rest: results[0].reply}
	n := in.int()
	if results[1].err != nil || results[1].reply[0] != "0" {
		c.tellCount(ctx, r)
	}
	return driver.CountReply{Value: uint64(n)}, true, in.err
}

// uncounted reports that a server has certainly not counted: it cannot serve, or the value is none that INCRBY can
// change. In words that are not known to be a refusal a proxy may tell of an answer that it lost.
func uncounted(err error) bool {
	text, refused := serverSays(err)
	return refused && (untouched(err) || says(text, "WRONGTYPE") || strings.Contains(text, "would overflow") || strings.Contains(text, "not an integer"))
}

// tellCount publishes what a counter is to watchers, and has scripts do so
// from now on. What it is asked for has happened already, whatever becomes of
// this.
func (c *client) tellCount(ctx context.Context, r *driver.CountRequest) {
	c.mu.Lock()
	c.adds.watched = driver.Now()
	c.mu.Unlock()
	if _, err := c.call(ctx, tellCountScript, r.Name, bit(r.Unsigned)); err != nil {
		c.fault("add", r.Name, err)
	}
}
