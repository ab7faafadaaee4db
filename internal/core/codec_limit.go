package core

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

// What limiters are asked and answer, and what a snapshot holds of them.

// The fields of an ask beyond op, key and cost.
const (
	askRate = 1 << iota
	askWait
	askAhead
	askReservation
	endAsk
)

func askFields(a *LimitAsk) uint64 {
	return mask(a.Rate.Count != 0, askRate) | mask(a.Wait != 0, askWait) | mask(a.Ahead != 0, askAhead) |
		mask(a.Reservation != limit.Reservation{}, askReservation)
}

func appendAsk(dst []byte, a *LimitAsk) []byte {
	fields := askFields(a)
	dst = append(dst, byte(a.Op), byte(fields))
	dst = appendString(dst, a.Key)
	dst = binary.AppendVarint(dst, a.Cost)
	if fields&askRate != 0 {
		dst = appendRate(dst, &a.Rate)
	}
	if fields&askWait != 0 {
		dst = binary.AppendVarint(dst, a.Wait)
	}
	if fields&askAhead != 0 {
		dst = binary.AppendVarint(dst, a.Ahead)
	}
	if fields&askReservation != 0 {
		dst = appendReservation(dst, &a.Reservation)
	}
	return dst
}

func (r *reader) ask() *LimitAsk {
	a := &LimitAsk{Op: LimitOp(r.enum(byte(LimitSetRate), "limiter operation"))}
	fields := uint64(r.enum(endAsk-1, "field of an ask"))
	a.Key, a.Cost = r.string(), r.varint()
	if fields&askRate != 0 {
		a.Rate = r.rate()
	}
	if fields&askWait != 0 {
		a.Wait = r.varint()
	}
	if fields&askAhead != 0 {
		a.Ahead = r.varint()
	}
	if fields&askReservation != 0 {
		a.Reservation = r.reservation()
	}
	r.absent(fields != askFields(a))
	return a
}

// appendRate leaves the name out.
func appendRate(dst []byte, x *limit.Rate) []byte {
	dst = append(dst, byte(x.Algorithm), byte(x.Every))
	return varints(dst, x.Count, int64(x.Per), x.Burst, x.Initial, int64(x.Offset))
}

func (r *reader) rate() limit.Rate {
	return limit.Rate{
		Algorithm: limit.Algorithm(r.byte()), Every: limit.Period(r.byte()), Count: r.varint(), Per: time.Duration(r.varint()),
		Burst: r.varint(), Initial: r.varint(), Offset: time.Duration(r.varint()),
	}
}

func appendReservation(dst []byte, v *limit.Reservation) []byte {
	return binary.AppendUvarint(varints(dst, v.Cost, v.At, v.Until, v.Given), v.Epoch)
}

func (r *reader) reservation() limit.Reservation {
	return limit.Reservation{Cost: r.varint(), At: r.varint(), Until: r.varint(), Given: r.varint(), Epoch: r.uvarint()}
}

func varints(dst []byte, list ...int64) []byte {
	for _, x := range list {
		dst = binary.AppendVarint(dst, x)
	}
	return dst
}

func appendAnswer(dst []byte, a *LimitAnswer) []byte {
	d := &a.Decision
	dst = appendBool(dst, d.Allowed)
	dst = varints(dst, d.Asked, d.Remaining, d.Limit, int64(d.RetryAfter), int64(d.ResetAfter), a.Now)
	dst = appendReservation(dst, &a.Reservation)
	return appendRate(dst, &a.Rate)
}

func (r *reader) answer() *LimitAnswer {
	return &LimitAnswer{
		Decision: limit.Decision{
			Allowed: r.flag(r.byte()), Asked: r.varint(), Remaining: r.varint(), Limit: r.varint(),
			RetryAfter: time.Duration(r.varint()), ResetAfter: time.Duration(r.varint()),
		},
		Now: r.varint(), Reservation: r.reservation(), Rate: r.rate(),
	}
}

func (u *usage) encode(dst []byte) []byte {
	dst = appendString(dst, u.of.ns.name)
	dst = binary.AppendUvarint(dst, u.of.number)
	dst = appendString(dst, u.key)
	dst = binary.AppendVarint(dst, u.due)
	s := &u.state
	dst = appendBool(dst, s.Known)
	dst = varints(dst, s.At, s.Part, s.Given, s.Leased, s.Used, s.Before)
	dst = binary.AppendUvarint(dst, uint64(len(s.Log)))
	last := int64(0)
	for _, x := range s.Log {
		dst = varints(dst, x.At-last, x.Cost)
		last = x.At
	}
	return dst
}

func (r *reader) limitState() limit.State {
	s := limit.State{Known: r.flag(r.byte()), At: r.varint(), Part: r.varint(), Given: r.varint(), Leased: r.varint(), Used: r.varint(), Before: r.varint()}
	last := int64(0)
	for range r.count() {
		last += r.varint()
		s.Log = append(s.Log, limit.Admission{At: last, Cost: r.varint()})
		if r.err != nil {
			break
		}
	}
	// A window of the calendar may begin before 1970.
	if slices.Min([]int64{s.Part, s.Given, s.Leased, s.Used, s.Before}) < 0 || len(s.Log) > limit.MaxLog {
		r.fail("a key of a limiter that makes no sense")
	}
	return s
}

func (r *reader) limiter(ns *namespace) *limiter {
	l := &limiter{ns: ns, number: r.uvarint(), rate: r.rate()}
	if r.err == nil && l.rate.Check() != nil {
		r.fail("a rate that makes no sense")
	}
	return l
}

// limiters lists those that can be asked.
func (b *builder) limiters() {
	b.rates = map[uint64]*limiter{}
	b.m.resources.each(func(r *resource) {
		if r.limiter == nil {
			return
		}
		if b.rates[r.limiter.number] != nil {
			b.fail("two limiters of one number")
		}
		b.rates[r.limiter.number] = r.limiter
	})
}

// usage reads what a key has used. One of no limiter is of a limiter that was given up.
func (b *builder) usage(r *reader) {
	m := b.m
	u := m.usages.place(r.slot())
	ns, number, key, due := m.space(r.string()), r.uvarint(), r.string(), r.varint()
	s := r.limitState()
	if u == nil || r.err != nil || due < 0 {
		r.fail("two keys of limiters at one place")
		return
	}
	l := b.rates[number]
	if l == nil {
		l = &limiter{ns: ns, number: number, givenUp: true}
		b.rates[number] = l
		m.left.insert(l)
	}
	if _, twice := l.keys.find(key); twice || l.ns != ns {
		r.fail("a key of a limiter twice, or of another namespace")
		return
	}
	u.of, u.key, u.state, u.due = l, clone(key), s, due
	l.keys.insert(u)
	ns.limitKeys++
	if due != 0 {
		m.usageDue.set(u, due)
	}
}
