package gateway

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// A call with an idempotency key runs on a session that is made of the key, as
// its command number one, which the machine answers only once: a repetition gets
// the result that was kept, from any leader. The session lives ten minutes.
//
// What the machine could not do at that moment is no answer to keep: the mark of the session
// is raised over it, and the repetition is number two.
const memoTTL = 10 * time.Minute

// memoLimit is how many keys this node remembers at a time; it refuses more.
const memoLimit = 100_000

// memo knows the keys that may still be remembered, however often each is used.
type memo struct {
	mu    sync.Mutex
	known map[core.SessionID]*list.Element
	order list.List // of remembered, by their ends
}

// remembered is a key, by its session.
type remembered struct {
	id  core.SessionID
	end time.Time
}

// add notes the use of a key, which is remembered anew from then on. A new one is
// refused if there are too many.
func (m *memo) add(id core.SessionID, now time.Time) (fresh bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for e := m.order.Front(); e != nil && e.Value.(remembered).end.Before(now); e = m.order.Front() {
		m.remove(e)
	}
	if e := m.known[id]; e != nil {
		e.Value = remembered{id, now.Add(memoTTL)}
		m.order.MoveToBack(e)
		return false, nil
	}
	if n := len(m.known); n >= memoLimit {
		e := driver.Errorf("", "", driver.ErrExhausted, "%d idempotency keys are remembered, and none is forgotten before its time", n)
		e.RetryAfter = m.order.Front().Value.(remembered).end.Sub(now)
		return false, e
	}
	if m.known == nil {
		m.known = map[core.SessionID]*list.Element{}
	}
	m.known[id] = m.order.PushBack(remembered{id, now.Add(memoTTL)})
	return true, nil
}

func (m *memo) remove(e *list.Element) { delete(m.known, m.order.Remove(e).(remembered).id) }

// drop forgets a key with which nothing was done.
func (m *memo) drop(id core.SessionID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.known[id]; e != nil {
		m.remove(e)
	}
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
func (g *Gateway) doKeyed(ctx context.Context, key string, c core.Command) (core.Result, int64, error) {
	ns := callerOf(ctx).namespace
	print := fingerprint(c)
	id := keySession(ns, key)
	fresh, err := g.memo.add(id, time.Now())
	if err != nil {
		return core.Result{}, 0, err
	}
	open := core.Command{Op: core.OpOpen, Namespace: ns, TTL: int64(memoTTL), Owner: "idempotency key", Meta: print}
	reply, err := g.submitKeyed(ctx, id, open, c)
	if err != nil {
		if fresh && notDone(err) {
			g.memo.drop(id)
		}
		return core.Result{}, 0, err
	}
	if reply.Results[0].Code == core.CodeNoSession {
		return core.Result{}, 0, errUsedKey()
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

// submitKeyed runs the command of a key under the first number that was not turned down.
func (g *Gateway) submitKeyed(ctx context.Context, id core.SessionID, open, c core.Command) (core.Reply, error) {
	for c.Seq = 1; ; {
		reply, err := g.submit(ctx, &core.Frame{Session: id, Mark: c.Seq, Commands: []core.Command{open, c}})
		if err != nil {
			return reply, err
		}
		switch reply.Results[1].Code {
		case core.CodeUnavailable:
			g.askAnew(ctx, id, open, c.Seq)
		case core.CodeForgotten:
			if err := g.sameRequest(ctx, id, open.Meta); err != nil { // before another request is done in its place
				return reply, err
			}
			next, err := g.nextOfKey(ctx, id)
			if err != nil {
				return reply, err
			}
			if next > c.Seq {
				c.Seq = next
				continue
			}
		}
		return reply, nil
	}
}

// askAnew has the next repetition of a call with a key be done anew: the machine could not do
// number seq at that moment, and has kept that it could not. That is no change of the caller's.
func (g *Gateway) askAnew(ctx context.Context, id core.SessionID, open core.Command, seq uint64) {
	c := callerOf(ctx)
	c.tried = nil
	ctx = context.WithValue(ctx, callerKey{}, c)
	_, _ = g.submit(ctx, &core.Frame{Session: id, Mark: seq + 1, Commands: []core.Command{open}}) // else the repetition does it
}

// nextOfKey is the number of the command of a key after all that were turned down; 0: the
// session has been used for other commands since, or is gone.
func (g *Gateway) nextOfKey(ctx context.Context, id core.SessionID) (next uint64, err error) {
	err = g.look(ctx, func(m *core.Machine, _ int64) {
		if s, ok := m.Session(id); ok && s.Mark < leastRange {
			next = s.Mark
		}
	})
	return next, err
}

// sameRequest refuses a key that was used for another request: what this one
// asked for was not done.
func (g *Gateway) sameRequest(ctx context.Context, id core.SessionID, print string) error {
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

// notDone: what failed certainly changed nothing.
func notDone(err error) bool {
	e, ok := errors.AsType[*driver.Error](err)
	return ok && e.Outcome == driver.NotDone
}

func errOtherRequest() error {
	return driver.Errorf("", "", driver.ErrConflict, "the idempotency key was used for another request: use a new one")
}

// errUsedKey is told to a call with a key that was used for the same before, by a session that
// has ended since.
func errUsedKey() error {
	e := driver.Errorf("", "", driver.ErrLost, "this idempotency key was used before, and what became of that call is not remembered any more: look, and use a new key for a new call")
	e.Outcome = driver.Unknown
	return e
}
