package core

import "encoding/binary"

// crowd is what a name has only if it has many holders, or some that are late or
// nobody's any more.
type crowd struct {
	byToken map[uint64]*part // all holders; nil: they are few
	// late are the holders of whom others may take the name, by token. Some may have
	// been renewed since: they are dropped when they are met.
	late      tree[*part]
	takes     int64 // what the late take of the capacity
	orphans   int   // holders that are nobody's
	ownerless int64 // what those take
}

// indexHolders is the number of holders from which a name finds them by a map.
const indexHolders = 24

// addHolder gives p its room at the end of the holders, which are in order of token.
func (r *resource) addHolder(p *part) {
	p.place = inHolders
	r.used += p.takes()
	r.holders.push(p)
	if r.holders.n > indexHolders {
		r.index(p)
	}
}

func (r *resource) index(p *part) {
	c := r.crowded()
	if c.byToken != nil {
		c.byToken[p.c.token] = p
		return
	}
	c.byToken = make(map[uint64]*part, 2*indexHolders)
	for h := r.holders.head; h != nil; h = h.next {
		c.byToken[h.c.token] = h
	}
}

// dropHolder takes the room from p.
func (r *resource) dropHolder(p *part) {
	r.holders.remove(p)
	r.used -= p.takes()
	p.place = nowhere
	if r.crowd != nil {
		r.disperse(p)
	}
}

// disperse forgets what the crowd has of p.
func (r *resource) disperse(p *part) {
	c := r.crowd
	delete(c.byToken, p.c.token)
	if r.holders.n <= indexHolders {
		c.byToken = nil
	}
	if p.c.s == nil {
		c.orphans--
		c.ownerless -= p.takes()
	}
	if p.late {
		r.notLate(p)
	} else {
		r.trimCrowd()
	}
}

// holderWith finds the holder that has the token.
func (r *resource) holderWith(token uint64) *part {
	if r.crowd != nil && r.crowd.byToken != nil {
		return r.crowd.byToken[token]
	}
	for p := r.holders.head; p != nil; p = p.next {
		if p.c.token == token {
			return p
		}
	}
	return nil
}

func (r *resource) crowded() *crowd {
	if r.crowd == nil {
		r.crowd = &crowd{}
	}
	return r.crowd
}

func (r *resource) trimCrowd() {
	if c := r.crowd; c.byToken == nil && c.late.n == 0 && c.orphans == 0 {
		r.crowd = nil
	}
}

// id orders late holders.
func (p *part) id() string {
	return string(binary.BigEndian.AppendUint64(make([]byte, 0, 8), p.c.token))
}

// nowLate notes that others may take what p holds.
func (r *resource) nowLate(p *part) {
	if p.late {
		return
	}
	p.late = true
	c := r.crowded()
	c.late.insert(p)
	c.takes += p.takes()
}

// notLate takes that back.
func (r *resource) notLate(p *part) {
	if !p.late {
		return
	}
	p.late = false
	r.crowd.late.remove(p.id())
	r.crowd.takes -= p.takes()
	r.trimCrowd()
}

// orphaned notes that p is nobody's.
func (r *resource) orphaned(p *part) {
	r.notLate(p)
	c := r.crowded()
	c.orphans++
	c.ownerless += p.takes()
}
