package edge

import (
	"encoding/binary"
	"hash/crc32"
	"unique"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/limit"
)

// reader takes a message apart; after the first mistake it yields zeroes.
type reader struct {
	b      []byte
	bad    bool
	actors []unique.Handle[crdt.Actor]
	head   window // of the limiter of the windows that follow
}

// parse reads all of a message before anything is merged, so that one that is not
// right changes nothing.
func parse(b []byte) (m message, err error) {
	if len(b) < len(magic)+6 || string(b[:len(magic)]) != magic || b[len(magic)] != version ||
		crc32.Checksum(b[:len(b)-4], table) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return m, errMessage
	}
	r := &reader{b: b[len(magic)+2 : len(b)-4]}
	flags := b[len(magic)+1]
	m.ask, m.kept, m.all, m.last = flags&flagAsk != 0, flags&flagKept != 0, flags&flagAll != 0, flags&flagLast != 0
	m.sender, m.run, m.seq, m.sent = r.actor(), r.fixed(), r.number(), r.signed()
	m.total = r.number()
	r.actors = append(r.actors, unique.Make(m.sender))
	for len(r.b) > 0 && !r.bad {
		r.section(&m)
	}
	if r.bad {
		return message{}, errMessage
	}
	return m, nil
}

func (r *reader) section(m *message) {
	whole := r.b[0]&sectionWhole != 0
	switch kind := r.b[0] &^ sectionWhole; kind {
	case sectionCounter:
		r.b = r.b[1:]
		c := count{whole: whole, name: r.name()}
		if c.count.Decode(r.bytes()) != nil {
			r.fail()
		}
		m.counts = append(m.counts, c)
	case sectionPart:
		r.b = r.b[1:]
		c := count{whole: true, name: r.name(), part: r.number(), of: r.number()}
		if c.count.Decode(r.bytes()) != nil || c.part >= c.of {
			r.fail()
		}
		m.counts = append(m.counts, c)
	case sectionLimiter:
		r.b = r.b[1:]
		r.head = window{limiter: r.name(), per: r.amount(), algorithm: limit.Algorithm(r.byte())}
	case sectionWindow:
		r.b = r.b[1:]
		m.windows = append(m.windows, r.window(whole))
	case sectionSet, sectionRegister:
		r.b = r.b[1:]
		m.values = append(m.values, r.value(kind))
	default:
		r.fail()
	}
}

func (r *reader) value(kind byte) valueSection {
	v := valueSection{kind: kind, name: r.name()}
	var err error
	if kind == sectionSet {
		err = v.set.Decode(r.bytes())
	} else {
		err = v.reg.Decode(r.bytes())
	}
	if err != nil {
		r.fail()
	}
	return v
}

func (r *reader) window(whole bool) window {
	w := r.head
	w.whole = whole
	if w.limiter == "" {
		r.fail()
	}
	w.key, w.epoch, w.debt = r.key(), r.signed(), r.amount()
	if w.debt > maxDebtWindows*limit.MaxCount {
		r.fail()
	}
	for n := r.count(); n > 0 && !r.bad; n-- {
		s := slot{r.actorRef(), pair{r.amount(), r.amount()}}
		if s.n.now > limit.MaxCount || s.n.before > limit.MaxCount {
			r.fail()
		}
		w.slots = append(w.slots, s)
	}
	return w
}

func (r *reader) actorRef() unique.Handle[crdt.Actor] {
	i := r.number()
	switch {
	case i < uint64(len(r.actors)):
		return r.actors[i]
	case i > uint64(len(r.actors)):
		r.fail()
	}
	a := unique.Make(r.actor())
	r.actors = append(r.actors, a)
	return a
}

func (r *reader) fail() { r.b, r.bad = nil, true }

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) signed() int64 {
	n, size := binary.Varint(r.b)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

// amount is a number that is an int64.
func (r *reader) amount() int64 {
	n := r.number()
	if n > 1<<63-1 {
		r.fail()
		return 0
	}
	return int64(n)
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) fixed() uint64 {
	if len(r.b) < 8 {
		r.fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

// count is a number of things that take a byte each at least, so that a lie costs no
// memory.
func (r *reader) count() int {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.fail()
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

// name is a text that could have been given to this package.
func (r *reader) name() string {
	s := string(r.bytes())
	if s == "" || len(s) > MaxName {
		r.fail()
	}
	return s
}

// key is that of a limiter, and may be "".
func (r *reader) key() string {
	s := string(r.bytes())
	if len(s) > MaxName {
		r.fail()
	}
	return s
}

func (r *reader) actor() crdt.Actor { return crdt.Actor{Node: r.name(), Incarnation: r.number()} }
