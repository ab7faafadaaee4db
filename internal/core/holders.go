package core

// crowd is what a name has only if it has many holders, or some that are late or
// nobody's any more.
type crowd struct {
	byToken tree[uint64, *part] // all holders; empty: they are few
	// late are the holders from which others may take the name, by token. Some may have
	// been renewed since: they are dropped when they are met.
	late      tree[uint64, *part]
	takes     int64 // what the late take of the capacity
	orphans   int   // holders that are nobody's
	ownerless int64 // what those take
}

// indexHolders is the number of holders from which a name finds them by a tree.
const indexHolders = 24

// addHolder gives p its room at the end of the holders, which are in order of token.
func (r *resource) addHolder(p *part) {
	p.place = inHolders
	r.used += p.takes()
	r.holders.push(p)
	if r.indexed() || r.holders.n > indexHolders {
		r.index(p)
	}
}

// indexed says whether there is a tree, which has all holders then: it stays until they are
// far fewer than those it was made for.
func (r *resource) indexed() bool { return r.crowd != nil && r.crowd.byToken.n > 0 }

func (r *resource) index(p *part) {
	c := r.crowded()
	if c.byToken.n > 0 {
		c.byToken.insert(p)
		return
	}
	for h := r.holders.head; h != nil; h = h.next {
		c.byToken.insert(h)
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
	c.byToken.remove(p.c.token)
	if r.holders.n <= indexHolders/2 {
		c.byToken = tree[uint64, *part]{}
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
	if r.indexed() {
		p, _ := r.crowd.byToken.find(token)
		return p
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
	if c := r.crowd; c.byToken.n == 0 && c.late.n == 0 && c.orphans == 0 {
		r.crowd = nil
	}
}

// id orders holders.
func (p *part) id() uint64 { return p.c.token }

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
