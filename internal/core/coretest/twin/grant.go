package twin

import (
	"cmp"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
)

// settle grants everything that can be granted: it walks over all names in
// order, again and again, until a whole walk changes nothing or the entry has no
// steps left.
func (t *Twin) settle() {
	for !t.frozen && t.serves > 0 && t.settleOnce() {
		t.serves--
	}
}

// settleOnce serves the first name, in order, at which something can be done.
func (t *Twin) settleOnce() bool {
	names := slices.Clone(t.names)
	slices.SortFunc(names, func(a, b *name) int { return compareNames(a.ns, a.name, b.ns, b.name) })
	for _, n := range names {
		if t.serve(n) {
			return true
		}
		n.touched = false
	}
	return false
}

// serve does one thing at n: take a reservation back, drop a dead waiter, grant an
// upgrade, or reserve n for the claim at the head of its queue.
func (t *Twin) serve(n *name) bool {
	head := t.head(n)
	if up := t.upgradeAt(n); up != nil {
		head = up
	}
	switch {
	case t.overbooked(n):
		t.yield(n, t.lastReserved(n))
		return true
	case head == nil || head.s.ending && !n.touched:
		return false
	case head.s.ending:
		t.drop(head, core.CodeNoSession)
		return true
	case head.target != nil:
		return t.serveUpgrade(n, head)
	case n.kind == core.Barrier:
		return t.serveBarrier(n)
	case !t.fits(head, n):
		return t.reclaimFor(head, n)
	}
	t.reserve(head)
	return true
}

// reserve sets the next name aside for c, and grants c when it was the last.
func (t *Twin) reserve(c *claim) {
	c.reserved++
	if c.reserved < len(c.wants) {
		t.find(c.ns, c.wants[c.reserved].Name).touched = true
		return
	}
	until := int64(0)
	if c.maxHold > 0 {
		until = t.now + c.maxHold
	}
	t.grant(c, core.VerbAcquired, until)
}

// grant makes c a hold with a token of its own; until is its max-hold deadline.
func (t *Twin) grant(c *claim, v core.Verb, until int64) {
	queued := c.created != 0
	c.state, c.reserved = core.ClaimGranted, 0
	c.token = t.next()
	c.created = c.token
	c.change(c.token)
	c.since = t.now
	c.deadline, c.reason = until, core.CodeMaxHold
	t.tell(c, v, core.CodeOK)
	if queued {
		t.push(c, core.ClaimGranted, core.CodeOK)
	}
}

// head is the first in the queue of n.
func (t *Twin) head(n *name) *claim {
	for _, c := range t.claims {
		if c.standsAt(n) {
			return c
		}
	}
	return nil
}

func (t *Twin) upgradeAt(n *name) *claim {
	for _, c := range t.claims {
		if t.upgrading(c, n) {
			return c
		}
	}
	return nil
}

// fits says whether there is room for c at n beside all that take up room now.
func (t *Twin) fits(c *claim, n *name) bool { return t.fitsBeside(c, n, t.claims) }

func (t *Twin) fitsBeside(c *claim, n *name, others []*claim) bool {
	w := c.want(n)
	used := int64(0)
	for _, o := range others {
		if o == c || !o.takes(n) {
			continue
		}
		exclusive := w.Mode == core.Exclusive || o.want(n).Mode == core.Exclusive
		if n.kind != core.Semaphore && n.kind != core.Latch && exclusive {
			return false
		}
		used += o.want(n).Weight
	}
	switch n.kind {
	case core.Semaphore:
		return w.Weight <= n.limit-used
	case core.Latch:
		return n.limit == 0
	}
	return true
}

// free says whether a try gets all it wants at once: it fits everywhere, and
// nobody waits before it.
func (t *Twin) free(c *claim) bool { return t.busy(c) == nil }

// busy is the first name that a try cannot have: there is no room that could be made,
// or too little of this entry is left to make it.
func (t *Twin) busy(c *claim) *name {
	rest := t.rest()
	steps := len(c.wants)
	for _, w := range c.wants {
		n := t.find(c.ns, w.Name)
		if n.kind == core.Latch {
			if n.limit > 0 {
				return n
			}
			continue
		}
		stale := t.reclaimable(c, n, true)
		if t.upgradeAt(n) != nil || t.liveHead(n) != nil || n.kind == core.Barrier && n.limit > 1 || !t.fits(c, n) && stale == nil {
			return n
		}
		if t.awaited(n) {
			steps += t.standing(n) + 1
		}
		if steps += len(stale); (t.awaited(n) || len(stale) > 0) && (steps > t.serves || rest) {
			return n
		}
	}
	return nil
}

// rest says whether an entry had not enough steps for all that could be granted.
func (t *Twin) rest() bool {
	return t.serves <= 0 && slices.ContainsFunc(t.names, func(n *name) bool { return n.touched })
}

// awaited says whether any claim waits for n, now or when it gets there.
func (t *Twin) awaited(n *name) bool { return t.waiters(n) > 0 }

// standing counts the queue of n.
func (t *Twin) standing(n *name) (count int) {
	for _, c := range t.claims {
		if c.standsAt(n) {
			count++
		}
	}
	return count
}

// liveHead is the first in the queue of n whose session lives.
func (t *Twin) liveHead(n *name) *claim {
	for _, c := range t.claims {
		if c.standsAt(n) && !c.s.ending {
			return c
		}
	}
	return nil
}

// serveUpgrade grants an upgrade when its shared claim is the only holder.
// Reservations yield to it.
func (t *Twin) serveUpgrade(n *name, up *claim) bool {
	if c := t.firstReserved(n); c != nil {
		t.yield(n, c)
		return true
	}
	for _, o := range t.claims {
		if o != up.target && o.holds(n) {
			return t.reclaimFor(up, n)
		}
	}
	target := up.target
	up.was = shared{target.seq, target.token, target.since, target.version}
	up.minHold, up.delay, up.value = target.minHold, target.delay, target.value
	t.remove(target)
	t.record(target, core.CodeLost)
	up.target = nil
	t.grant(up, core.VerbUpgraded, target.deadline)
	return true
}

// yield takes n, and what comes after it, from c, which only has it reserved.
func (t *Twin) yield(n *name, c *claim) {
	c.reserved = slices.IndexFunc(c.wants, func(w core.Want) bool { return w.Name == n.name })
	t.touch(c, c.reserved)
}

// firstReserved and lastReserved are the first and the last, by arrival, that only have
// n reserved.
func (t *Twin) firstReserved(n *name) *claim {
	for _, c := range t.claims {
		if c.state == core.ClaimWaiting && c.takes(n) {
			return c
		}
	}
	return nil
}

func (t *Twin) lastReserved(n *name) *claim {
	for _, c := range slices.Backward(t.claims) {
		if c.state == core.ClaimWaiting && c.takes(n) {
			return c
		}
	}
	return nil
}

// overbooked says whether a semaphore has become too small for the claims that hold it or
// have it reserved, and some only have.
func (t *Twin) overbooked(n *name) bool {
	used := int64(0)
	for _, c := range t.claims {
		if c.takes(n) {
			used += c.want(n).Weight
		}
	}
	return n.kind == core.Semaphore && used > n.limit && t.lastReserved(n) != nil
}

// serveBarrier lets everybody pass when all parties are there.
func (t *Twin) serveBarrier(n *name) bool {
	var there []*claim
	for _, c := range t.claims {
		if c.standsAt(n) && !c.s.ending {
			there = append(there, c)
		}
	}
	if int64(len(there)) < n.limit {
		return false
	}
	t.next()
	t.event(core.Event{Kind: core.EventBarrier, Verb: core.VerbTripped, Namespace: n.ns, Name: n.name, Number: uint64(n.limit)})
	for _, c := range there[:n.limit] {
		t.reserve(c)
	}
	t.serves -= int(n.limit) - 1
	return true
}

// reclaimFor takes stale claims for c, oldest first, until c would fit at n:
// those that leave nothing behind if they will do, else any; none, if even all of
// them would not do. What is under min-hold or delay stays
// taken, ownerless, like after an expiry.
func (t *Twin) reclaimFor(c *claim, n *name) bool {
	victims := t.reclaimable(c, n, true)
	if victims == nil {
		victims = t.reclaimable(c, n, false)
	}
	if victims == nil {
		return false
	}
	victims = victims[:min(len(victims), t.serves)]
	t.serves -= len(victims) - 1
	for _, v := range victims {
		t.next()
		t.tell(v, core.VerbReclaimed, core.CodeOK)
		t.push(v, core.ClaimGone, core.CodeLost)
		t.record(v, core.CodeLost)
		t.leave(v, true)
	}
	return true
}

// byToken lists claims as they were granted.
func byToken(claims []*claim) []*claim {
	list := slices.Clone(claims)
	slices.SortStableFunc(list, func(a, b *claim) int { return cmp.Compare(a.token, b.token) })
	return list
}

// reclaimable lists the stale claims that must go for c to fit at n, those that hold it
// longest first; atOnce, only those that leave nothing behind.
func (t *Twin) reclaimable(c *claim, n *name, atOnce bool) []*claim {
	rest := slices.DeleteFunc(slices.Clone(t.claims), func(o *claim) bool {
		return o == c.target || !atOnce && o.s == nil // goes by itself
	})
	if t.fitsBeside(c, n, rest) {
		return nil
	}
	var victims []*claim
	stale := slices.DeleteFunc(slices.Clone(t.claims), func(o *claim) bool {
		return o.s == nil || o.s == c.s || !o.s.reclaimable || !o.holds(n) || atOnce && (o.delay > 0 || o.since+o.minHold > t.now)
	})
	for _, o := range byToken(stale) {
		victims = append(victims, o)
		rest = slices.DeleteFunc(rest, func(x *claim) bool { return x == o })
		if t.fitsBeside(c, n, rest) {
			return victims
		}
	}
	return nil
}

// touch marks the names of c from the given one on.
func (t *Twin) touch(c *claim, from int) {
	for _, w := range c.wants[from:] {
		if n := t.find(c.ns, w.Name); n != nil {
			n.touched = true
		}
	}
}

// remove forgets c as a claim.
func (t *Twin) remove(c *claim) {
	t.touch(c, 0)
	t.claims = slices.DeleteFunc(t.claims, func(o *claim) bool { return o == c })
}

// record keeps what became of c for as long as its client may ask.
func (t *Twin) record(c *claim, code core.Code) {
	if c.s == nil || c.s.ending || c.seq < c.s.mark {
		return
	}
	r := core.Result{Seq: c.seq, Code: code, Revision: t.revision, Token: c.token}
	c.s.records = append(c.s.records, record{result: r, gone: true})
}
