package edge

import (
	"math/bits"
	"slices"
	"time"
	"unique"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/limit"
)

// rule is what decides about each key of a limiter.
type rule struct {
	rate    limit.Rate
	cap     limit.Rate // what this node may admit alone; Count 0: as much as all
	maxDebt int64      // of windows
	span    int64      // the length of a window in nanoseconds
	most    int64      // how far ahead of now the moment of a bucket may be, in nanoseconds
}

// bucket reports that windows only tell what is new to a bucket, which decides.
func (r *rule) bucket() bool {
	return r.rate.Algorithm == limit.GCRA || r.rate.Algorithm == limit.TokenBucket
}

// epoch is the number of the window of now.
func (r *rule) epoch(now int64) int64 {
	e := now / r.span
	if now%r.span < 0 {
		e--
	}
	return e
}

// entry is what is known of one key: counts of a window and of the one before. An
// entry decides and merges; it has no lock and no clock.
type entry struct {
	key   string
	epoch int64 // number of the window
	debt  int64 // what windows earlier than the two have left to pay
	own   pair
	slots []slot // what others have counted
	at    int64  // of a bucket, when it is full again: limit.State's At and Part
	part  int64
	relief
	pos   int32 // in shard.all
	dirty bool  // in shard.dirty
}

// pair is a count of the entry's window and of the one before.
type pair struct{ now, before int64 }

// slot is what one other actor has counted.
type slot struct {
	actor unique.Handle[crdt.Actor]
	n     pair
}

// sum is what all have counted.
func (e *entry) sum() pair {
	sum := e.own
	for i := range e.slots {
		sum.now += e.slots[i].n.now
		sum.before += e.slots[i].n.before
	}
	return sum
}

// roll moves on to a later window. A window that is more than one ahead of the time
// that is asked for comes from a clock that was wrong, and begins anew.
func (e *entry) roll(r *rule, to int64) {
	switch steps := to - e.epoch; {
	case steps < -1:
		*e = entry{key: e.key, epoch: to, pos: e.pos, dirty: e.dirty}
	case steps == 1:
		e.debt = e.owed(r, e.sum())
		e.own = pair{0, e.own.now}
		e.slots = slices.DeleteFunc(e.slots, func(s slot) bool { return s.n.now == 0 })
		for i := range e.slots {
			e.slots[i].n = pair{0, e.slots[i].n.now}
		}
		e.epoch = to
	case steps > 1:
		e.debt = r.pay(e.owes(r), 0, steps-2)
		e.own, e.slots = pair{}, nil
		e.epoch = to
	}
}

// owed is what the entry's window has to pay for those before it.
func (e *entry) owed(r *rule, sum pair) int64 { return r.pay(e.debt, sum.before, 1) }

// owes is what the next window has to pay.
func (e *entry) owes(r *rule) int64 {
	sum := e.sum()
	return r.pay(e.owed(r, sum), sum.now, 1)
}

// pay is the debt after a number of windows, of which the first has used some.
func (r *rule) pay(debt, used, windows int64) int64 {
	high, paid := bits.Mul64(uint64(r.rate.Count), uint64(windows))
	if high != 0 || paid >= uint64(debt+used) {
		return 0
	}
	return min(debt+used-int64(paid), r.maxDebt)
}

// decide says whether cost may be taken, without taking it.
func (e *entry) decide(r *rule, now, cost int64, d *limit.Decision) {
	if r.bucket() {
		_, *d = limit.Take(r.rate, e.state(), now, cost)
	} else {
		e.decideWindow(r, now, cost, d)
	}
	if r.cap.Count > 0 {
		var alone limit.Decision
		e.ask(&r.cap, e.own.now, e.own.before, now, cost, &alone)
		*d = both(*d, alone)
	}
}

// state is that of a bucket.
func (e *entry) state() limit.State { return limit.State{Known: true, At: e.at, Part: e.part} }

// take counts a cost that was allowed, or is charged.
func (e *entry) take(r *rule, now, cost int64) {
	e.own.now = min(e.own.now+cost, limit.MaxCount)
	e.charge(r, now, now, cost)
}

// charge takes from a bucket what was taken at a time, as far as a debt may grow.
func (e *entry) charge(r *rule, at, now, cost int64) {
	if !r.bucket() || cost == 0 {
		return
	}
	s := limit.Charge(r.rate, e.state(), at, cost)
	e.at, e.part = s.At, s.Part
	if most := now + r.most; e.at > most {
		e.at, e.part = most, 0
	}
}

// over is what was admitted above the rate, as far as it is owed now.
func (e *entry) over(r *rule, now int64) int64 {
	if !r.bucket() {
		sum := e.sum()
		return max(sum.now+e.owed(r, sum)-r.rate.Count, 0)
	}
	high, low := bits.Mul64(uint64(max(e.at-now-r.full(), 0)), uint64(r.rate.Count))
	if high >= uint64(r.rate.Per) {
		return limit.MaxCount
	}
	units, _ := bits.Div64(high, low, uint64(r.rate.Per))
	return int64(min(units, limit.MaxCount))
}

// full is how long an empty bucket takes to be full, in nanoseconds.
func (r *rule) full() int64 { return r.fill(r.rate.Limit()) }

// fill is how long a bucket takes for so much, in nanoseconds.
func (r *rule) fill(n int64) int64 {
	high, low := bits.Mul64(uint64(n), uint64(r.rate.Per))
	if high >= uint64(r.rate.Count) {
		return maxFill
	}
	ns, _ := bits.Div64(high, low, uint64(r.rate.Count))
	return int64(min(ns, uint64(maxFill)))
}

// maxFill is the longest time that a bucket takes to be full, that of package limit: with
// it any time of this century can be summed up.
const maxFill = int64(100 * 366 * 24 * time.Hour)

func (e *entry) decideWindow(r *rule, now, cost int64, d *limit.Decision) {
	sum := e.sum()
	used := sum.now + e.owed(r, sum)
	e.ask(&r.rate, used, sum.before, now, cost, d)
	if !d.Allowed {
		d.RetryAfter = r.retry(d.RetryAfter, used, cost)
	}
}

// ask is [limit.Take] of the entry's window. A fixed window is decided here, since
// copying a rate and a state takes longer than all the rest of a decision.
func (e *entry) ask(r *limit.Rate, used, before, now, cost int64, d *limit.Decision) {
	begin := e.epoch * int64(r.Per)
	if r.Algorithm == limit.SlidingWindow {
		_, *d = limit.Take(*r, limit.State{Known: true, At: begin, Used: used, Before: before}, now, cost)
		return
	}
	d.Asked, d.Limit, d.Policy = cost, r.Count, r.Name
	left := time.Duration(begin + int64(r.Per) - now) // also before it begins, by a clock that was set back
	switch {
	case cost < 0 || cost > r.Count:
		d.RetryAfter = limit.Never
	case used+cost > r.Count:
		d.RetryAfter = left
	default:
		d.Allowed = true
		used += cost
	}
	d.Remaining = max(r.Count-used, 0)
	if used > 0 {
		d.ResetAfter = left
	}
}

// retry is how long a fixed window has to wait: what is owed takes the next windows.
func (r *rule) retry(after time.Duration, used, cost int64) time.Duration {
	if r.maxDebt == 0 || after == limit.Never {
		return after
	}
	over := r.pay(0, used, 1) - (r.rate.Count - cost)
	if over <= 0 {
		return after
	}
	return after + time.Duration((over+r.rate.Count-1)/r.rate.Count)*r.rate.Per
}

// both is the decision of what all nodes may and of what this one may alone.
func both(all, alone limit.Decision) limit.Decision {
	d := all
	d.Allowed = all.Allowed && alone.Allowed
	d.Remaining = min(untaken(&all, d.Allowed), untaken(&alone, d.Allowed))
	d.RetryAfter = max(all.RetryAfter, alone.RetryAfter)
	if all.RetryAfter == limit.Never || alone.RetryAfter == limit.Never {
		d.RetryAfter = limit.Never
	}
	return d
}

// untaken is what remains of a part that was allowed in vain.
func untaken(d *limit.Decision, taken bool) int64 {
	if d.Allowed && !taken {
		return d.Remaining + d.Asked
	}
	return d.Remaining
}

// past reports that no other node would count the entry at that window; nor would one that is more
// than one ahead of it, which comes from a clock that was wrong.
func (e *entry) past(epoch int64) bool { return e.epoch < epoch-1 || e.epoch > epoch+1 }

// idle reports that the entry says at the window to what an unknown key would. One that is
// more than one window ahead comes from a clock that was wrong, and would begin anew.
func (e *entry) idle(r *rule, to int64) bool {
	switch {
	case e.dirty:
		return false
	case e.epoch > to+1:
		return true
	case to-e.epoch < 2 || e.at > to*r.span:
		return false
	}
	return r.pay(e.owes(r), 0, to-e.epoch-1) == 0
}

// merge joins what another node knows. What is of the window before counts there;
// what is older does not count any more. What is new of it is charged to a bucket as taken
// just now; or, if the sender may tell it from before began, when this node did, reported as
// late. full are the actors for which there is no room.
func (e *entry) merge(r *rule, w *window, self unique.Handle[crdt.Actor], now, began int64) (late bool, full uint64) {
	if w.epoch > e.epoch {
		e.roll(r, w.epoch)
	}
	age := e.epoch - w.epoch
	if age > 1 {
		return false, 0
	}
	if age == 0 {
		e.debt = max(e.debt, min(w.debt, r.maxDebt))
	}
	for _, s := range w.slots {
		if age == 1 {
			s.n = pair{0, s.n.now}
		}
		by, ok := e.raise(s, self)
		if !ok {
			full++
			continue
		}
		if s.actor.Value().Incarnation < uint64(began) && s.actor != self {
			late = late || by != pair{}
			continue
		}
		e.charge(r, min(e.epoch*r.span, now), now, by.before)
		e.charge(r, now, now, by.now)
	}
	return late, full
}

// catchUp charges a bucket for all of the two windows, as if it was taken as early as it
// can have been: a node that has just begun would refuse what the rate allows if all of it
// counted as taken now.
func (e *entry) catchUp(r *rule, now int64) {
	if !r.bucket() {
		return
	}
	begin, sum := e.epoch*r.span, e.sum()
	at := max(begin+r.fill(sum.now), begin-r.span+r.fill(sum.now+sum.before))
	if at = min(at, now+r.most); at > e.at {
		e.at, e.part = at, 0
	}
}

// told reports that a whole of another node tells all that this one would have to.
func (e *entry) told(w *window, v *view) bool {
	age := e.epoch - w.epoch
	if age != 0 && e.debt > 0 || age == 0 && w.debt < e.debt {
		return false
	}
	return !slices.ContainsFunc(e.slots, func(s slot) bool { return v.missing(s.actor) && !w.tells(s, age) })
}

// tells reports that the window, of so many windows ago, has at least the slot's counts.
func (w *window) tells(s slot, age int64) bool {
	i := slices.IndexFunc(w.slots, func(o slot) bool { return o.actor == s.actor })
	switch {
	case i < 0 || age > 1:
		return s.n == pair{}
	case age == 1:
		return s.n.now == 0 && w.slots[i].n.now >= s.n.before
	}
	return w.slots[i].n.now >= s.n.now && w.slots[i].n.before >= s.n.before
}

// maxActors is how many other actors a key remembers: a message may name any number, and each is looked for among
// all.
const maxActors = 10_000

// raise takes the greater of two reports, and returns what is new of it; false: there is no room for the actor.
func (e *entry) raise(s slot, self unique.Handle[crdt.Actor]) (by pair, ok bool) {
	if s.actor == self {
		return e.own.raise(s.n), true
	}
	i := slices.IndexFunc(e.slots, func(o slot) bool { return o.actor == s.actor })
	if i < 0 && len(e.slots) == maxActors {
		return pair{}, false
	}
	if i < 0 {
		i = len(e.slots)
		e.slots = append(e.slots, slot{actor: s.actor})
	}
	return e.slots[i].n.raise(s.n), true
}

// raise makes p at least to and returns by how much it grew.
func (p *pair) raise(to pair) (by pair) {
	by = pair{max(to.now-p.now, 0), max(to.before-p.before, 0)}
	p.now += by.now
	p.before += by.before
	return by
}
