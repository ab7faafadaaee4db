package core

import (
	"math"
	"math/bits"
)

// count changes or reads a counter. The first change fixes whether it is
// signed.
func (m *Machine) count(ns *namespace, c *Command, r *Result) {
	res, value := m.counter(ns, c, r)
	if r.Code != CodeOK {
		return
	}
	if !m.fits(c, value, r) {
		return
	}
	r.Number, r.OK = counted(c, value)
	switch {
	case c.Count == CountLoad, c.Count == CountSwap && !r.OK, res != nil && r.Number == value:
		return
	case res == nil:
		if !m.quota(ns, 1, r) {
			r.Number, r.OK = 0, false
			return
		}
		res = m.name(ns, c.Name, Counter, 0)
		res.unsigned = c.Unsigned
	}
	m.touchResource(res)
	res.number = r.Number
	r.Revision = m.next()
	m.stamp(res)
	m.tellName(res, VerbChanged, res.number)
}

// counter finds the counter of c and its value, or refuses.
func (m *Machine) counter(ns *namespace, c *Command, r *Result) (*resource, uint64) {
	if !m.validName(c.Name, r) {
		return nil, 0
	}
	res := ns.lookup(c.Name)
	switch {
	case c.Count > CountAddAll:
		r.refuse(CodeInvalid, "counter operation %d is unknown", c.Count)
	case res == nil:
	case res.kind != Counter:
		r.refuse(CodeConflict, "%q is of kind %s, not a counter: use another name", c.Name, res.kind)
	case res.unsigned != c.Unsigned:
		r.refuse(CodeConflict, "counter %q is the other of signed and unsigned: use it as what it was made", c.Name)
	default:
		return res, res.number
	}
	return nil, 0
}

// fits refuses a sum that would pass an end of the counter's range.
func (m *Machine) fits(c *Command, value uint64, r *Result) bool {
	if c.Count == CountAddAll && !exact(c, value) {
		r.refuse(CodeExhausted, "counter %q is at %d, too near to the end of its range for all of it: add each amount by itself", c.Name, value)
	}
	return r.Code == CodeOK
}

// exact reports whether adding c.A to value does not stop at an end of the range.
func exact(c *Command, value uint64) bool {
	sum, carry := bits.Add64(value, c.A, 0)
	if c.Unsigned {
		return carry == 0
	}
	return (value^sum)&(c.A^sum)>>63 == 0
}

// counted is the value that c makes of a counter.
func counted(c *Command, value uint64) (uint64, bool) {
	switch c.Count {
	case CountAdd, CountAddAll:
		if c.Unsigned {
			return addUnsigned(value, c.A), false
		}
		return addSigned(int64(value), int64(c.A)), false
	case CountSub:
		if c.Unsigned {
			return value - min(c.A, value), false
		}
		return subSigned(int64(value), int64(c.A)), false
	case CountStore:
		return c.A, false
	case CountSwap:
		if value == c.A {
			return c.B, true
		}
	}
	return value, false
}

func addUnsigned(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

func addSigned(a, b int64) uint64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return 1 << 63
	}
	return uint64(a + b)
}

func subSigned(a, b int64) uint64 {
	switch {
	case b < 0 && a > math.MaxInt64+b:
		return math.MaxInt64
	case b > 0 && a < math.MinInt64+b:
		return 1 << 63
	}
	return uint64(a - b)
}

// reserveNumbers takes the next numbers of a sequence, or only tells the next
// one. It never wraps: at the end it is exhausted.
func (m *Machine) reserveNumbers(ns *namespace, c *Command, r *Result) {
	if !m.validName(c.Name, r) {
		return
	}
	res := ns.lookup(c.Name)
	next := max(1, c.B)
	if res != nil {
		if res.kind != Sequence {
			r.refuse(CodeConflict, "%q is of kind %s, not a sequence: use another name", c.Name, res.kind)
			return
		}
		next = res.number
	}
	switch {
	case c.A == 0:
		r.Number = next
		return
	case c.A > math.MaxUint64-next:
		r.refuse(CodeExhausted, "sequence %q has %d numbers left, not %d: take fewer, or begin another", c.Name, math.MaxUint64-next, c.A)
		return
	case res == nil:
		if !m.quota(ns, 1, r) {
			return
		}
		res = m.name(ns, c.Name, Sequence, 0)
	}
	m.touchResource(res)
	res.number = next + c.A
	r.Revision, r.Number = m.next(), next
	m.stamp(res)
	m.tellName(res, VerbReserved, res.number)
}
