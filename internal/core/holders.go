package core

import "encoding/binary"

// indexHolders is the number of holders from which a name finds them by a map.
const indexHolders = 24

// addHolder gives p its room at the end of the holders, which are in order of token.
func (r *resource) addHolder(p *part) {
	p.place = inHolders
	r.used += p.takes()
	r.holders.push(p)
	switch {
	case r.byToken != nil:
		r.byToken[p.c.token] = p
	case r.holders.n > indexHolders:
		r.byToken = make(map[uint64]*part, 2*indexHolders)
		for h := r.holders.head; h != nil; h = h.next {
			r.byToken[h.c.token] = h
		}
	}
	if p.c.s == nil {
		r.orphaned(p)
	}
}

// dropHolder takes the room from p.
func (r *resource) dropHolder(p *part) {
	r.notLate(p)
	r.holders.remove(p)
	r.used -= p.takes()
	p.place = nowhere
	if p.c.s == nil {
		r.late.orphans--
		r.late.ownerless -= p.takes()
		r.trimLate()
	}
	if r.byToken != nil {
		delete(r.byToken, p.c.token)
	}
	if r.holders.n < indexHolders/2 {
		r.byToken = nil
	}
}

// holderWith finds the holder that has the token.
func (r *resource) holderWith(token uint64) *part {
	if r.byToken != nil {
		return r.byToken[token]
	}
	for p := r.holders.head; p != nil; p = p.next {
		if p.c.token == token {
			return p
		}
	}
	return nil
}

// late are the holders of a name of whom others may take it, and what is nobody's any
// more. Some of the former may have been renewed since: they are
// dropped when they are met.
type late struct {
	parts     tree[*part] // by token
	takes     int64       // of the capacity, all of them
	orphans   int
	ownerless int64 // what those take
}

// id orders late holders.
func (p *part) id() string {
	return string(binary.BigEndian.AppendUint64(make([]byte, 0, 8), p.c.token))
}

func (r *resource) lateHolders() *late {
	if r.late == nil {
		r.late = &late{}
	}
	return r.late
}

// nowLate notes that others may take what p holds.
func (r *resource) nowLate(p *part) {
	if p.late {
		return
	}
	p.late = true
	l := r.lateHolders()
	l.parts.insert(p)
	l.takes += p.takes()
}

// notLate takes that back.
func (r *resource) notLate(p *part) {
	if !p.late {
		return
	}
	p.late = false
	r.late.parts.remove(p.id())
	r.late.takes -= p.takes()
	r.trimLate()
}

// orphaned notes that p is nobody's.
func (r *resource) orphaned(p *part) {
	l := r.lateHolders()
	l.orphans++
	l.ownerless += p.takes()
}

func (r *resource) trimLate() {
	if r.late.parts.n == 0 && r.late.orphans == 0 {
		r.late = nil
	}
}
