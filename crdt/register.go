package crdt

import (
	"bytes"
	"cmp"
)

// Stamp orders writes: the later wins, and of two at the same time the greater
// actor's.
type Stamp struct {
	At    Time
	Actor Actor
}

// Compare is negative if s is earlier than t.
func (s Stamp) Compare(t Stamp) int {
	if c := cmp.Compare(s.At, t.At); c != 0 {
		return c
	}
	return s.Actor.Compare(t.Actor)
}

// Register keeps the value that was written last. The zero value was never written.
// Whether a stamp may be believed is checked by [Clock.Observe] before a Merge.
type Register struct {
	value []byte
	stamp Stamp
}

// Set writes a value and returns the delta for the others. A stamp that is earlier than the last
// write changes nothing, nor does the zero Stamp: take it from [Clock.Next], which gives none twice.
func (r *Register) Set(value []byte, s Stamp) Register {
	if s == (Stamp{}) {
		return Register{}
	}
	d := Register{value: bytes.Clone(value), stamp: s}
	r.Merge(d)
	return d
}

// Value is what was written last, and when, by which node; a zero Stamp: nothing was.
func (r *Register) Value() ([]byte, Stamp) { return r.value, r.stamp }

// Merge joins what another node knows and reports whether it was later.
func (r *Register) Merge(o Register) (changed bool) {
	if !o.after(r) {
		return false
	}
	*r = o
	return true
}

// after also orders two values under one stamp, which only a mistake makes, the same
// everywhere.
func (r *Register) after(o *Register) bool {
	if c := r.stamp.Compare(o.stamp); c != 0 {
		return c > 0
	}
	return bytes.Compare(r.value, o.value) > 0
}

// State is the whole register as a delta.
func (r *Register) State() Register { return *r }
