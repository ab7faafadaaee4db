package crdt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
)

// version is that of the encodings; a decoder refuses what is newer.
const version = 1

// The kinds of what is encoded.
const (
	kindGCounter byte = 1 + iota
	kindPNCounter
	kindGSet
	kindORSet
	kindRegister
	kindMap
	kindVersion
)

// ErrDecode says that bytes are not what they should be: cut off, flipped, of
// another kind or of a newer version.
var ErrDecode = errors.New("not a valid encoding")

var table = crc32.MakeTable(crc32.Castagnoli)

// sealed is kind, version, what body appends, and a checksum over all of it.
func sealed(dst []byte, kind byte, body func([]byte) []byte) []byte {
	from := len(dst)
	dst = body(append(dst, kind, version))
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], table))
}

// reader takes an encoding apart; after the first mistake it yields zeroes.
type reader struct {
	b   []byte
	err error
}

// unseal checks frame and checksum.
func unseal(b []byte, kind byte) reader {
	var r reader
	switch {
	case len(b) < 6:
		r.fail("%d bytes are too short", len(b))
	case crc32.Checksum(b[:len(b)-4], table) != binary.LittleEndian.Uint32(b[len(b)-4:]):
		r.fail("the checksum differs")
	case b[0] != kind:
		r.fail("it is of kind %d, not %d", b[0], kind)
	case b[1] == 0 || b[1] > version:
		r.fail("it is of version %d; this program knows version %d", b[1], version)
	default:
		r.b = b[2 : len(b)-4]
	}
	return r
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("crdt: %s: %w", fmt.Sprintf(format, args...), ErrDecode)
	}
	r.b = nil
}

// end refuses what is left over.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes are left over", len(r.b))
	}
	return r.err
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.fail("a number is cut off")
		return 0
	}
	r.b = r.b[size:]
	return n
}

// count is a number of things that take a byte each at least, so that a lie costs no
// memory.
func (r *reader) count() int {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.fail("%d things do not fit into %d bytes", n, len(r.b))
		return 0
	}
	return int(n)
}

func (r *reader) bytes() []byte {
	n := r.count()
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) actor() Actor { return Actor{string(r.bytes()), r.number()} }

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendActor(dst []byte, a Actor) []byte {
	return binary.AppendUvarint(appendText(dst, a.Node), a.Incarnation)
}

// Append appends the encoding of c to dst.
func (c *GCounter) Append(dst []byte) []byte { return sealed(dst, kindGCounter, c.append) }

// Decode makes c what b encodes; if b is no such thing, c stays as it was.
func (c *GCounter) Decode(b []byte) error {
	return decode(b, kindGCounter, c, (*reader).gcounter)
}

// decode sets to only if everything is right.
func decode[T any](b []byte, kind byte, to *T, read func(*reader) T) error {
	r := unseal(b, kind)
	v := read(&r)
	if err := r.end(); err != nil {
		return err
	}
	*to = v
	return nil
}

func (c *GCounter) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(c.folds)))
	for _, f := range c.folds {
		dst = binary.AppendUvarint(binary.AppendUvarint(appendText(dst, f.node), f.below), f.sum)
	}
	return appendSlots(dst, c.slots)
}

func appendSlots(dst []byte, slots []slot) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(slots)))
	for i := range slots {
		dst = binary.AppendUvarint(appendActor(dst, slots[i].actor), slots[i].n)
	}
	return dst
}

func (r *reader) gcounter() (c GCounter) {
	for n := r.count(); n > 0 && r.err == nil; n-- {
		f := fold{string(r.bytes()), r.number(), r.number()}
		if last := len(c.folds) - 1; r.err == nil && (f.below == 0 || last >= 0 && c.folds[last].node >= f.node) {
			r.fail("folded nodes are out of order, or nothing of them is folded")
		}
		c.folds = append(c.folds, f)
	}
	c.slots = r.slots()
	for i := range c.slots {
		if c.folded(c.slots[i]) {
			r.fail("the actor %s is counted twice", c.slots[i].actor)
		}
	}
	return c
}

func (r *reader) slots() (list []slot) {
	n := r.count()
	for i := range n {
		s := slot{r.actor(), r.number()}
		if i > 0 && r.err == nil && list[i-1].actor.Compare(s.actor) >= 0 {
			r.fail("actors are out of order")
		}
		if r.err != nil {
			return nil
		}
		list = append(list, s)
	}
	return list
}

// Append appends the encoding of c to dst.
func (c *PNCounter) Append(dst []byte) []byte {
	return sealed(dst, kindPNCounter, func(b []byte) []byte { return c.down.append(c.up.append(b)) })
}

// Decode makes c what b encodes; if b is no such thing, c stays as it was.
func (c *PNCounter) Decode(b []byte) error {
	return decode(b, kindPNCounter, c, func(r *reader) PNCounter { return PNCounter{up: r.gcounter(), down: r.gcounter()} })
}

// Append appends the encoding of s to dst.
func (s *GSet) Append(dst []byte) []byte {
	return sealed(dst, kindGSet, func(b []byte) []byte {
		b = binary.AppendUvarint(b, uint64(len(s.has)))
		for _, e := range s.Elements() {
			b = appendText(b, e)
		}
		return b
	})
}

// Decode makes s what b encodes; if b is no such thing, s stays as it was.
func (s *GSet) Decode(b []byte) error {
	return decode(b, kindGSet, s, func(r *reader) (v GSet) {
		for n := r.count(); n > 0 && r.err == nil; n-- {
			if !v.put(string(r.bytes())) && r.err == nil {
				r.fail("an element is there twice")
			}
		}
		return v
	})
}

// Append appends the encoding of s to dst.
func (s *ORSet) Append(dst []byte) []byte {
	return sealed(dst, kindORSet, func(b []byte) []byte {
		b = s.context.append(b)
		b = binary.AppendUvarint(b, uint64(len(s.dots)))
		for _, d := range slices.SortedFunc(maps.Keys(s.dots), compareDots) {
			b = appendText(appendDot(b, d), s.dots[d])
		}
		return b
	})
}

func appendDot(b []byte, d dot) []byte { return binary.AppendUvarint(appendActor(b, d.actor), d.n) }

func (c *context) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(c.upTo)))
	for _, a := range slices.SortedFunc(maps.Keys(c.upTo), Actor.Compare) {
		b = appendDot(b, dot{a, c.upTo[a]})
	}
	early := slices.SortedFunc(c.early(), compareDots)
	b = binary.AppendUvarint(b, uint64(len(early)))
	for _, d := range early {
		b = appendDot(b, d)
	}
	return b
}

// Decode makes s what b encodes; if b is no such thing, s stays as it was.
func (s *ORSet) Decode(b []byte) error { return decode(b, kindORSet, s, (*reader).orset) }

// AppendVersion appends what s has heard of to dst, for [ORSet.Reached] on another node: a number
// for each actor that ever added or removed.
func (s *ORSet) AppendVersion(dst []byte) []byte { return sealed(dst, kindVersion, s.context.append) }

// Reached reports that s has heard of all additions and removals that a version tells.
func (s *ORSet) Reached(version []byte) (bool, error) {
	var want context
	if err := decode(version, kindVersion, &want, (*reader).context); err != nil {
		return false, err
	}
	for a, n := range want.upTo {
		if s.context.upTo[a] < n {
			return false, nil
		}
	}
	for d := range want.early() {
		if !s.context.has(d) {
			return false, nil
		}
	}
	return true, nil
}

func (r *reader) context() (c context) {
	for n := r.count(); n > 0 && r.err == nil; n-- {
		if d := r.dot(); !c.raise(d.actor, d.n) && r.err == nil {
			r.fail("the additions of %s are there twice", d.actor)
		}
	}
	for n := r.count(); n > 0 && r.err == nil; n-- {
		if d := r.dot(); !c.add(d) && r.err == nil {
			r.fail("an addition of %s is there twice", d.actor)
		}
	}
	return c
}

func (r *reader) orset() (s ORSet) {
	s.context = r.context()
	for n := r.count(); n > 0 && r.err == nil; n-- {
		d, e := r.dot(), string(r.bytes())
		if _, twice := s.dots[d]; r.err == nil && (twice || !s.context.has(d)) {
			r.fail("an addition of %s is there twice, or not heard of", d.actor)
		}
		s.put(d, e)
	}
	return s
}

func (r *reader) dot() dot {
	d := dot{r.actor(), r.number()}
	if d.n == 0 {
		r.fail("additions count from 1")
	}
	if d.n > maxNumber {
		r.fail("the addition %d of %s is more than anybody makes", d.n, d.actor)
	}
	return d
}

// Append appends the encoding of r to dst.
func (r *Register) Append(dst []byte) []byte { return sealed(dst, kindRegister, r.append) }

func (r *Register) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(r.stamp.At))
	return appendText(appendActor(b, r.stamp.Actor), string(r.value))
}

// Decode makes r what b encodes; if b is no such thing, r stays as it was.
func (r *Register) Decode(b []byte) error { return decode(b, kindRegister, r, (*reader).register) }

func (r *reader) register() (v Register) {
	v.stamp = Stamp{Time(r.number()), r.actor()}
	v.value = slices.Clone(r.bytes())
	return v
}

// Append appends the encoding of m to dst.
func (m *Map) Append(dst []byte) []byte {
	return sealed(dst, kindMap, func(b []byte) []byte {
		b = binary.AppendUvarint(b, uint64(len(m.entries)))
		for _, k := range slices.Sorted(maps.Keys(m.entries)) {
			e := m.entries[k]
			gone := byte(0)
			if e.gone {
				gone = 1
			}
			b = e.append(append(appendText(b, k), gone))
		}
		return b
	})
}

// Decode makes m what b encodes; if b is no such thing, m stays as it was.
func (m *Map) Decode(b []byte) error {
	return decode(b, kindMap, m, func(r *reader) Map {
		v := Map{map[string]entry{}}
		for n := r.count(); n > 0 && r.err == nil; n-- {
			k, gone := string(r.bytes()), r.number()
			if _, twice := v.entries[k]; r.err == nil && (twice || gone > 1) {
				r.fail("a key is there twice, or neither kept nor deleted")
			}
			v.entries[k] = entry{r.register(), gone == 1}
		}
		return v
	})
}
