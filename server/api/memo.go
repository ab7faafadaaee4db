package api

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/session"
)

// A call with an idempotency key runs on a session that is made of the key, as
// its command number one, which the machine answers only once: a repetition gets
// the result that was kept, from any leader. The session lives ten minutes.
const memoTTL = 10 * time.Minute

// memoLimit is how many keys this node remembers at a time; it refuses more.
const memoLimit = 100_000

// memo counts the keys that may still be remembered.
type memo struct {
	mu   sync.Mutex
	ends []time.Time // in order
}

// add counts one more, unless there are too many.
func (m *memo) add(now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.ends) > 0 && m.ends[0].Before(now) {
		m.ends = m.ends[1:]
	}
	if len(m.ends) >= memoLimit {
		e := driver.Errorf("", "", driver.ErrExhausted, "%d idempotency keys are remembered, and none is forgotten before its time", len(m.ends))
		e.RetryAfter = m.ends[0].Sub(now)
		return e
	}
	m.ends = append(m.ends, now.Add(memoTTL))
	return nil
}

// keySession is the session of a key.
func keySession(ns, key string) core.SessionID {
	sum := sha256.Sum256([]byte("holdfast key " + ns + "\x00" + key))
	return session.Reserve(core.SessionID(sum[:16]))
}

// keyNumber is the number of the lease of a lock call with a key, below
// holdLease.
func keyNumber(key string) int64 {
	sum := sha256.Sum256([]byte("holdfast lock key " + key))
	return int64(binary.BigEndian.Uint64(sum[:8]) % uint64(holdLease))
}

// fingerprint tells requests apart that use the same key by mistake.
func fingerprint(c core.Command) string {
	sum := sha256.Sum256(core.AppendFrame(nil, &core.Frame{Commands: []core.Command{c}}))
	return "idempotency " + hex.EncodeToString(sum[:12])
}

// doKeyed runs a command that hangs on no lease once for its key.
func (g *gateway) doKeyed(ctx context.Context, key string, c core.Command) (core.Result, int64, error) {
	if err := g.memo.add(time.Now()); err != nil {
		return core.Result{}, 0, err
	}
	ns := callerOf(ctx).namespace
	print := fingerprint(c)
	id := keySession(ns, key)
	c.Seq = 1
	open := core.Command{Op: core.OpOpen, Namespace: ns, TTL: int64(memoTTL), Owner: "idempotency key", Meta: print}
	reply, err := g.submit(ctx, &core.Frame{Session: id, Mark: 1, Commands: []core.Command{open, c}})
	if err != nil {
		return core.Result{}, 0, err
	}
	if err := refusal(&reply.Results[0], reply.Now, nil); err != nil {
		return core.Result{}, 0, err
	}
	if err := g.sameRequest(ctx, id, print); err != nil {
		return core.Result{}, 0, err
	}
	r := reply.Results[1]
	return r, reply.Now, refusal(&r, reply.Now, c.Wants)
}

// sameRequest refuses a key that was used for another request: what this one
// asked for was not done.
func (g *gateway) sameRequest(ctx context.Context, id core.SessionID, print string) error {
	same := true
	err := g.look(ctx, func(m *core.Machine, _ int64) {
		if s, ok := m.Session(id); ok {
			same = s.Meta == print
		}
	})
	if err == nil && !same {
		err = errOtherRequest()
	}
	return err
}

func errOtherRequest() error {
	return driver.Errorf("", "", driver.ErrConflict, "the idempotency key was used for another request: use a new one")
}
