package twin

import (
	"math"
	"math/bits"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
)

// runObject does the commands that are not about a claim.
func (t *Twin) runObject(s *session, c core.Command) core.Result {
	switch c.Op {
	case core.OpResize:
		return t.resize(s, c)
	case core.OpDelete:
		return t.deleteObject(s, c)
	case core.OpCount:
		return t.count(s, c)
	case core.OpReserve:
		return t.reserveNumbers(s, c)
	case core.OpCountDown:
		return t.countDown(s, c)
	case core.OpTxn:
		return t.txn(s, c)
	case core.OpLimit:
		return t.limit(s, c)
	}
	return core.Result{Code: core.CodeInvalid}
}

// object finds the name of a command and says why it cannot be used as kind.
func (t *Twin) object(s *session, n string, kind core.Kind) (*name, core.Code) {
	o := t.find(s.ns, n)
	switch {
	case !goodName(n):
		return nil, core.CodeInvalid
	case o == nil:
		return nil, core.CodeNotExist
	case o.kind != kind:
		return nil, core.CodeConflict
	}
	return o, core.CodeOK
}

func (o *name) event(v core.Verb, number uint64) core.Event {
	return core.Event{Kind: eventKind(o.kind), Verb: v, Namespace: o.ns, Name: o.name, Number: number}
}

// resize sets a capacity; a waiter that can never fit any more is denied.
func (t *Twin) resize(s *session, c core.Command) core.Result {
	if c.Limit < 1 {
		return core.Result{Code: core.CodeInvalid}
	}
	o, code := t.object(s, c.Name, core.Semaphore)
	if o == nil {
		return core.Result{Code: code}
	}
	if o.limit == c.Limit {
		return core.Result{}
	}
	heavy := slices.DeleteFunc(slices.Clone(t.claims), func(w *claim) bool {
		return w.state != core.ClaimWaiting || !w.about(o) || w.want(o).Weight <= c.Limit
	})
	if len(heavy) > t.cfg.Budget {
		return core.Result{Code: core.CodeExhausted}
	}
	o.limit, o.touched = c.Limit, true
	r := core.Result{Revision: t.next()}
	t.event(o.event(core.VerbResized, uint64(c.Limit)))
	for _, w := range heavy {
		t.push(w, core.ClaimGone, core.CodeInvalid)
		t.drop(w, core.CodeInvalid)
	}
	t.settle()
	return r
}

// deleteObject removes an idle object.
func (t *Twin) deleteObject(s *session, c core.Command) core.Result {
	if c.Kind < core.Semaphore || c.Kind > core.Limiter || c.Kind == core.Election {
		return core.Result{Code: core.CodeInvalid}
	}
	o, code := t.object(s, c.Name, c.Kind)
	switch {
	case o == nil:
		return core.Result{Code: code}
	case t.inUse(o):
		return core.Result{Code: core.CodeConflict}
	}
	t.names = slices.DeleteFunc(t.names, func(n *name) bool { return n == o })
	r := core.Result{Revision: t.next()}
	if o.kind == core.Limiter {
		t.leaveKeys(o)
		t.event(o.event(core.VerbChanged, 0))
		return r
	}
	t.event(o.event(core.VerbDeleted, 0))
	return r
}

// count changes a counter.
func (t *Twin) count(s *session, c core.Command) core.Result {
	o, code := t.object(s, c.Name, core.Counter)
	switch {
	case c.Count > core.CountAddAll:
		return core.Result{Code: core.CodeInvalid}
	case code == core.CodeNotExist:
		o = &name{ns: s.ns, name: c.Name, kind: core.Counter, unsigned: c.Unsigned}
	case o == nil:
		return core.Result{Code: code}
	case o.unsigned != c.Unsigned:
		return core.Result{Code: core.CodeConflict}
	}
	value, swapped := counted(o, c)
	if c.Count == core.CountAddAll && value-o.number != c.A {
		return core.Result{Code: core.CodeExhausted} // it stopped on the way
	}
	if value == o.number && (code == core.CodeOK || c.Count == core.CountLoad || c.Count == core.CountSwap && !swapped) {
		return core.Result{Number: value, OK: swapped}
	}
	if code == core.CodeNotExist {
		if t.crowded(s.ns, 1) {
			return core.Result{Code: core.CodeExhausted}
		}
		t.names = append(t.names, o)
	}
	o.number = value
	r := core.Result{Revision: t.next(), Number: value, OK: swapped}
	t.event(o.event(core.VerbChanged, value))
	return r
}

// counted is the value that c makes of a counter.
func counted(o *name, c core.Command) (value uint64, swapped bool) {
	switch c.Count {
	case core.CountAdd, core.CountAddAll:
		return add(o, c.A), false
	case core.CountSub:
		return sub(o, c.A), false
	case core.CountStore:
		return c.A, false
	case core.CountSwap:
		if o.number == c.A {
			return c.B, true
		}
	}
	return o.number, false
}

// add saturates at the ends of the counter's type.
func add(o *name, a uint64) uint64 {
	if o.unsigned {
		sum, carry := bits.Add64(o.number, a, 0)
		if carry != 0 {
			return math.MaxUint64
		}
		return sum
	}
	x, y := int64(o.number), int64(a)
	switch sum := x + y; {
	case x > 0 && y > 0 && sum < 0:
		return math.MaxInt64
	case x < 0 && y < 0 && sum >= 0:
		return 1 << 63
	default:
		return uint64(sum)
	}
}

// sub saturates likewise; an unsigned counter stops at 0.
func sub(o *name, a uint64) uint64 {
	if o.unsigned {
		return o.number - min(a, o.number)
	}
	x, y := int64(o.number), int64(a)
	switch diff := x - y; {
	case x >= 0 && y < 0 && diff < 0:
		return math.MaxInt64
	case x < 0 && y > 0 && diff >= 0:
		return 1 << 63
	default:
		return uint64(diff)
	}
}

// reserveNumbers takes the next numbers of a sequence; it never wraps.
func (t *Twin) reserveNumbers(s *session, c core.Command) core.Result {
	o, code := t.object(s, c.Name, core.Sequence)
	switch {
	case code == core.CodeNotExist:
		o = &name{ns: s.ns, name: c.Name, kind: core.Sequence, number: max(1, c.B)}
	case o == nil:
		return core.Result{Code: code}
	}
	first := o.number
	switch {
	case c.A == 0:
		return core.Result{Number: first}
	case c.A > math.MaxUint64-first:
		return core.Result{Code: core.CodeExhausted}
	}
	if code == core.CodeNotExist {
		if t.crowded(s.ns, 1) {
			return core.Result{Code: core.CodeExhausted}
		}
		t.names = append(t.names, o)
	}
	o.number += c.A
	r := core.Result{Revision: t.next(), Number: first}
	t.event(o.event(core.VerbReserved, o.number))
	return r
}

// countDown takes from a latch, and opens it at zero.
func (t *Twin) countDown(s *session, c core.Command) core.Result {
	o, code := t.object(s, c.Name, core.Latch)
	switch {
	case c.Limit < 0:
		return core.Result{Code: core.CodeInvalid}
	case code == core.CodeNotExist && c.Limit > 0:
		o = &name{ns: s.ns, name: c.Name, kind: core.Latch, limit: c.Limit}
	case o == nil:
		return core.Result{Code: code}
	}
	if c.A == 0 || o.limit == 0 {
		return core.Result{Number: uint64(o.limit)}
	}
	if code == core.CodeNotExist {
		if t.crowded(s.ns, 1) {
			return core.Result{Code: core.CodeExhausted}
		}
		t.names = append(t.names, o)
	}
	o.limit -= int64(min(c.A, uint64(o.limit)))
	r := core.Result{Revision: t.next(), Number: uint64(o.limit)}
	t.event(o.event(core.VerbCounted, uint64(o.limit)))
	if o.limit == 0 {
		o.touched = true
		t.event(o.event(core.VerbOpened, 0))
	}
	t.settle()
	return r
}
