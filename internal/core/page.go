package core

import (
	"fmt"
	"strconv"
	"strings"
)

// What one read tells is bounded, so that it does not keep the machine long,
// whatever there is: a page says where the next one goes on. A page is one moment;
// between two of them things change, and what comes and goes meanwhile may be seen
// or not. What is there all the time is told once.
const (
	// MaxNames is how many names one List tells at most, and MaxClaims how many
	// claims, or names and keys of a session, one other read.
	MaxNames  = 1000
	MaxClaims = 1000
	// fewClaims is how many claims of one name a List tells.
	fewClaims = 100
	// maxNamesSeen is how many names one List looks at, free ones too.
	maxNamesSeen = 10_000
)

// Cursor is where the claims of a name, or what a session has, are told on from:
// behind the claim with a token, an arrival or a number, or behind a key. The zero
// Cursor is the beginning, or as the next place the end.
type Cursor struct {
	list byte
	n    uint64
	key  string
}

// The lists that a Cursor can be in.
const (
	cursorHolders = 'h' // of a name, by token
	cursorWaiters = 'w' // of a name, by arrival
	cursorClaims  = 'c' // of a session, by number
	cursorKeys    = 'k' // of a session, by name
)

// String is the Cursor as ParseCursor reads it; empty: the zero one.
func (c Cursor) String() string {
	switch c.list {
	case 0:
		return ""
	case cursorKeys:
		return string(c.list) + c.key
	}
	return string(c.list) + strconv.FormatUint(c.n, 10)
}

// ParseCursor reads what String has written of the Cursor of a name, or with
// session that of a session.
func ParseCursor(s string, session bool) (Cursor, error) {
	lists := string([]byte{cursorHolders, cursorWaiters})
	if session {
		lists = string([]byte{cursorClaims, cursorKeys})
	}
	switch {
	case s == "":
		return Cursor{}, nil
	case strings.IndexByte(lists, s[0]) < 0:
	case s[0] == cursorKeys:
		return Cursor{list: cursorKeys, key: s[1:]}, nil
	default:
		if n, err := strconv.ParseUint(s[1:], 10, 64); err == nil {
			return Cursor{list: s[0], n: n}, nil
		}
	}
	return Cursor{}, fmt.Errorf("%q is no place to go on from: give the one that the last answer named, or none to begin anew", s[:min(len(s), 40)])
}

// page is what may still be told.
type page struct {
	items, bytes int
	any          bool
}

func pageOf(wanted, most, bytes int) page {
	if wanted <= 0 || wanted > most {
		wanted = most
	}
	return page{items: wanted, bytes: bytes}
}

// take takes room for one item; the first always has some.
func (b *page) take(size int) bool {
	if b.any && (b.items <= 0 || size > b.bytes) {
		return false
	}
	b.any = true
	b.items--
	b.bytes -= size
	return true
}

// size is about what a claim takes of an answer.
func (i *ClaimInfo) size() int {
	return 128 + len(i.Name) + len(i.Identity) + len(i.Owner) + len(i.Meta) + len(i.Value)
}

// addClaims tells the claims of r behind after, those that hold first, as far as b
// goes.
func (r *resource) addClaims(i *ResourceInfo, after Cursor, b *page) {
	if after.list != cursorWaiters {
		last := after
		for p := r.heldAfter(after.n); p != nil; p = p.next {
			c := p.info()
			if !b.take(c.size()) {
				i.Next = last
				return
			}
			last = Cursor{list: cursorHolders, n: c.Token}
			i.Holders = append(i.Holders, c)
		}
		after = last
	}
	if r.queue != nil {
		r.addWaiters(i, after, b)
	}
}

func (r *resource) addWaiters(i *ResourceInfo, after Cursor, b *page) {
	position, before := 0, r.holders.tail
	r.queue.inOrder(func(p *part) bool {
		position++
		if after.list == cursorWaiters && (p.place == inUpgrade || p.c.arrival <= after.n) {
			before = p
			return true
		}
		w := p.info()
		w.Position = position
		w.behind(before)
		if !b.take(w.size()) {
			i.Next = after
			return false
		}
		if after = (Cursor{list: cursorWaiters, n: p.c.arrival}); p.place == inUpgrade {
			after.n = 0 // it goes before all others
		}
		before = p
		i.Waiters = append(i.Waiters, w)
		return true
	})
}

// behind notes which session a claim waits behind.
func (i *ClaimInfo) behind(p *part) {
	if p == nil {
		return
	}
	i.BeforeSeq = p.c.seq
	if p.c.s != nil {
		i.Before = p.c.s.id
	}
}

// heldAfter is the first holder with a greater token.
func (r *resource) heldAfter(token uint64) *part {
	if r.indexed() {
		p := r.crowd.byToken.first(token)
		if p != nil && p.c.token == token {
			p = p.next
		}
		return p
	}
	p := r.holders.head
	for p != nil && p.c.token <= token {
		p = p.next
	}
	return p
}

// inOrder calls f with the waiting parts in order of arrival, an upgrade first,
// until it says false.
func (l *queue) inOrder(f func(*part) bool) {
	if l.upgrade != nil && !f(&l.upgrade.one[0]) {
		return
	}
	heads := [...]*part{l.order.head, l.later.head, l.set.head}
	for {
		first := -1
		for i, p := range heads {
			if p != nil && (first < 0 || p.c.arrival < heads[first].c.arrival) {
				first = i
			}
		}
		if first < 0 || !f(heads[first]) {
			return
		}
		heads[first] = heads[first].next
	}
}

// after is the first claim with a greater number.
func (k *sessionData) after(seq uint64) *claim {
	if k != nil && k.index.n > 0 {
		c := k.index.first(seq)
		if c != nil && c.seq == seq {
			c = c.next
		}
		return c
	}
	c := k.head()
	for c != nil && c.seq <= seq {
		c = c.next
	}
	return c
}

// addClaims tells what the session holds and awaits, by the numbers of its claims, and
// moves after behind what it has told. It says whether that is all.
func (k *sessionData) addClaims(i *SessionInfo, after *Cursor, b *page) bool {
	for c := k.after(after.n); c != nil; c = c.next {
		if c.state == over {
			continue
		}
		parts := c.parts()
		if !b.take(0) {
			i.Next = *after
			return false
		}
		b.items -= len(parts) - 1
		for j := range parts {
			if c.state == waiting {
				i.Waits = append(i.Waits, parts[j].info())
			} else {
				i.Claims = append(i.Claims, parts[j].info())
			}
		}
		*after = Cursor{list: cursorClaims, n: c.seq}
	}
	return true
}

// addKeys tells the keys that end with the session.
func (k *sessionData) addKeys(i *SessionInfo, after Cursor, b *page) {
	keys := k.boundKeys()
	if keys == nil {
		return
	}
	keys.from(after.key, func(x *key) bool {
		if x.name == after.key {
			return true
		}
		if !b.take(0) {
			i.Next = after
			return false
		}
		i.Keys = append(i.Keys, x.name)
		after = Cursor{list: cursorKeys, key: x.name}
		return true
	})
}
