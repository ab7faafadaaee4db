package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/session"
)

// checker knows the truth: what was applied first, by whichever node, is what
// happened.
type checker struct {
	c         *cluster
	hashes    map[uint64]uint64 // by log index
	leaders   map[uint64]uint64 // by term
	rev       uint64            // the newest event seen
	ord       uint32
	began     bool
	names     map[string]*name
	sessions  map[core.SessionID]owner
	ended     map[core.SessionID]bool
	acked     map[string]uint64 // counters: acknowledged
	unsure    map[string]uint64 // and what may have happened besides
	limits    map[string]*decisions
	ids       map[given]bool // numbers that were given out
	values    map[value]bool // that were acknowledged
	uncertain []uncertain    // Adds with an outcome that their clients never learned
	log       []core.Event   // everything that happened, for the watchers
	floors    []uint64       // the revisions that restores began at
	opened    map[core.SessionID]bool
	early     map[core.SessionID]bool // see unheard
	undone    map[core.SessionID]bool // calls that were answered as not done, by the session they open
	refused   map[uint64]bool         // nodes with an addition that was answered as not done
	roll      roll
	fenced    bool // since the last restore only tokens protect from earlier holders
}

// uncertain is an Add that may have happened in each of some epochs: one that a
// restore took away may be sent once more.
type uncertain struct {
	HistoryOp
	from, to int
}

// given is a number of the sequence, as an epoch gave it out.
type given struct {
	epoch int
	id    uint64
}

// name is what the events say of one resource.
type name struct {
	token   uint64
	holders []holder
	queue   []waiter
	unclear []waiter // of these one has left, and others are alike
}

// waiter is a claim that waits. A session may have several for one name; of those that are alike an event
// does not tell which one it means.
type waiter struct {
	session core.SessionID
	mode    core.Mode
	weight  int64
}

func waiterOf(e *core.Event) waiter { return waiter{e.Session, e.Mode, e.Weight} }

type holder struct {
	session core.SessionID
	token   uint64
	mode    core.Mode
	weight  int64
}

func newChecker(c *cluster) *checker {
	return &checker{c: c, hashes: map[uint64]uint64{}, leaders: map[uint64]uint64{}, names: map[string]*name{},
		sessions: map[core.SessionID]owner{}, ended: map[core.SessionID]bool{}, acked: map[string]uint64{}, unsure: map[string]uint64{}, limits: map[string]*decisions{}, ids: map[given]bool{}, values: map[value]bool{}, refused: map[uint64]bool{},
		opened: map[core.SessionID]bool{}, early: map[core.SessionID]bool{}, undone: map[core.SessionID]bool{}}
}

// applied looks at what a node just did.
func (k *checker) applied(n *node, out *replica.Output) {
	for _, a := range out.Applied {
		if h, known := k.hashes[a.Index]; known && h != a.Hash {
			k.c.violate("node %d differs from the others after entry %d", n.id, a.Index)
		}
		k.hashes[a.Index] = a.Hash
		k.c.note(a.Index, a.Hash)
	}
	if term, leads := n.replica.Leads(); leads {
		if other, known := k.leaders[term]; known && other != n.id {
			k.c.violate("nodes %d and %d both lead in term %d", other, n.id, term)
		}
		k.leaders[term] = n.id
		if n.mistaken() {
			k.c.violate("node %d at %s, which was started under the number of another, leads", n.id, n.addr)
		}
	}
	if out.Members != nil {
		k.roll.given(n)
		k.members(n)
		k.alone(n)
	}
	for i := range out.Events {
		k.unheard(n, &out.Events[i])
		k.event(&out.Events[i])
	}
}

// unheard notes a fault of groups before version 6: the cancel of an upgrade that was revoked gives back what its
// holder still believes to hold shared.
func (k *checker) unheard(n *node, e *core.Event) {
	if e.Kind == core.EventRWLock && e.Verb == core.VerbReleased && e.Reason == core.CodeCanceled && n.replica.Machine().Version() < 6 {
		k.early[e.Session] = true
	}
}

// event is seen once, when the first node applies it.
func (k *checker) event(e *core.Event) {
	if k.began && (e.Revision < k.rev || e.Revision == k.rev && e.Ordinal <= k.ord) {
		return
	}
	if k.began && e.Revision > k.rev+1 {
		k.c.violate("revision %d follows %d", e.Revision, k.rev)
	}
	k.began, k.rev, k.ord = true, e.Revision, e.Ordinal
	k.log = append(k.log, *e)
	switch e.Kind {
	case core.EventLock, core.EventRWLock, core.EventSemaphore:
		k.resource(e)
	case core.EventSession:
		k.life(e)
	}
}

func (k *checker) resource(e *core.Event) {
	r := k.names[e.Name]
	if r == nil {
		r = &name{}
		k.names[e.Name] = r
	}
	switch e.Verb {
	case core.VerbQueued:
		k.wanted(e)
		r.queue = append(r.queue, waiterOf(e))
	case core.VerbAcquired, core.VerbUpgraded:
		k.wanted(e)
		k.alive(e)
		k.grant(r, e)
	case core.VerbDenied:
		if e.Reason != core.CodeHeld { // a try never waited, a claim that was given up just before still may
			r.leave(waiterOf(e))
		}
	case core.VerbReleased, core.VerbExpired, core.VerbReclaimed:
		r.free(e)
	case core.VerbRevoked:
		if k.ended[e.Session] {
			r.free(e) // no holder is left that could confirm it
		}
	case core.VerbDowngraded: // by its holder, or since the upgrade was given up
		for i := range r.holders {
			if h := &r.holders[i]; h.session == e.Session {
				h.mode, h.token = core.Shared, e.Token
			}
		}
	}
}

// leave takes a waiter out. Which one of several that are alike is not told: where the others stand is not judged any more.
func (r *name) leave(w waiter) {
	is := func(o waiter) bool { return o == w }
	all := len(r.queue) + len(r.unclear)
	r.queue, r.unclear = slices.DeleteFunc(r.queue, is), slices.DeleteFunc(r.unclear, is)
	if alike := all - len(r.queue) - len(r.unclear); alike > 0 {
		r.unclear = append(r.unclear, slices.Repeat([]waiter{w}, alike-1)...)
	} else if i := slices.IndexFunc(r.queue, func(o waiter) bool { return o.session == w.session }); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1) // an upgrade, which is told with what it has then
	}
}

// free takes a holder away; a claim that ends while it waits leaves the queue.
func (r *name) free(e *core.Event) {
	for i, h := range r.holders {
		if h.session == e.Session && (e.Token == 0 || h.token == e.Token) {
			r.holders = slices.Delete(r.holders, i, i+1)
			return
		}
	}
	r.leave(waiterOf(e))
}

// grant checks a grant against everything that is promised of it.
func (k *checker) grant(r *name, e *core.Event) {
	k.c.res.Grants++
	if e.Token <= r.token {
		k.c.violate("%s: token %d after %d", e.Name, e.Token, r.token)
	}
	if e.Token >= 1<<53 {
		k.c.violate("%s: token %d is too large for some to hold", e.Name, e.Token)
	}
	if e.Token != e.Revision {
		k.c.violate("%s: token %d at revision %d", e.Name, e.Token, e.Revision)
	}
	r.token = e.Token
	if e.Verb == core.VerbUpgraded {
		r.holders = slices.DeleteFunc(r.holders, func(h holder) bool { return h.session == e.Session })
		r.leave(waiterOf(e))
	} else {
		k.fifo(r, e)
	}
	r.holders = append(r.holders, holder{e.Session, e.Token, e.Mode, e.Weight})
	k.capacity(r, e)
	k.lostFirst(r, e)
}

// fifo: the session that is granted was first in the queue, or none waited. What a session that has ended waits for
// is dropped when a grant comes to it, which is told later.
func (k *checker) fifo(r *name, e *core.Event) {
	over := func(w waiter) bool { return k.ended[w.session] }
	r.queue, r.unclear = slices.DeleteFunc(r.queue, over), slices.DeleteFunc(r.unclear, over)
	if i := slices.Index(r.unclear, waiterOf(e)); i >= 0 { // older than one in the queue that is alike
		r.unclear = slices.Delete(r.unclear, i, i+1)
		return
	}
	if len(r.queue) == 0 {
		return
	}
	if first := r.queue[0].session; first != e.Session {
		k.c.violate("%s: granted to session %x before %x, which waited longer", e.Name, e.Session[:9], first[:9])
		return
	}
	r.queue = r.queue[1:]
}

func (k *checker) capacity(r *name, e *core.Event) {
	var weight int64
	writers := 0
	for _, h := range r.holders {
		weight += max(1, h.weight)
		if h.mode == core.Exclusive {
			writers++
		}
	}
	switch {
	case e.Kind == core.EventSemaphore && weight > capacity:
		k.c.violate("%s: %d of %d taken", e.Name, weight, capacity)
	case e.Kind != core.EventSemaphore && writers > 0 && len(r.holders) > 1:
		k.c.violate("%s: %d holders, one of them alone", e.Name, len(r.holders))
	}
}

// lostFirst: no session that is not a holder any more still believes to be one. This
// is the promise that the rest is for.
func (k *checker) lostFirst(r *name, e *core.Event) {
	for _, c := range k.c.clients {
		for _, o := range c.calls {
			if o.resource() != e.Name || e.Kind == core.EventRWLock && k.early[o.s.ID()] || !c.believes(o, k.c.now) || k.fencedOff(o) {
				continue
			}
			if !slices.ContainsFunc(r.holders, func(h holder) bool { return h.session == o.s.ID() }) {
				d, _ := o.s.Deadline()
				k.c.violate("%s: granted to session %x while client %d still believes to hold it (seq %d, for %d ms more)", e.Name, e.Session[:9], c.id, o.call.Seq(), (d-c.now())/millisecond)
			}
		}
	}
}

// resource is the name that an operation is about.
func (o *op) resource() string {
	if o.name == "rw-upgrade" {
		return "rw"
	}
	return o.name
}

// done checks the answer of a call.
func (k *checker) done(c *client, o *op) {
	call := o.call
	ok := call.Outcome == session.Answered && call.Result.Code == core.CodeOK
	switch o.kind {
	case core.OpCount:
		k.history(c.id, o, ok)
		if ok {
			k.counted(o)
		} else if call.Outcome == session.Unknown {
			k.unsure[o.name] += o.amount
		}
	case core.OpReserve:
		if ok {
			k.reserved(call)
		}
	case core.OpLimit:
		k.decided(o, ok)
	}
	if call.Outcome == session.Unknown && !call.Denied && c.session == o.s && o.s.Alive() {
		k.c.violate("client %d: the outcome of seq %d is unknown although its session lives", c.id, call.Seq())
	}
}

// counted notes an Add that was acknowledged. What a cluster of before a restore
// acknowledges late says nothing about the one of now.
func (k *checker) counted(o *op) {
	if k.epochOf(o.call.Result.Revision) != k.epoch() {
		return
	}
	k.acked[o.name] += o.amount
	if o.epoch == k.epoch() && o.call.Result.Number < o.least+o.amount {
		k.c.violate("%s: an Add answered %d, although %d had been acknowledged when it was sent", o.name, o.call.Result.Number, o.least)
	}
}

// history notes an Add that happened, or may have.
func (k *checker) history(id uint64, o *op, ok bool) {
	h := HistoryOp{Client: int(id), Name: o.name, Add: o.amount, Call: o.began, Return: k.c.now, Value: o.call.Result.Number}
	switch {
	case ok:
		h.Name = scoped(o.name, k.epochOf(o.call.Result.Revision))
		k.values[value{h.Name, h.Value}] = true
		k.c.res.History = append(k.c.res.History, h)
		k.doubt(o, h, k.epochOf(o.call.Result.Revision)-1)
	case o.call.Outcome == session.Unknown:
		k.doubt(o, h, math.MaxInt)
	}
}

// doubt notes that an Add may have happened in the epochs up to one.
func (k *checker) doubt(o *op, h HistoryOp, to int) {
	h.Name, h.Return = o.name, math.MaxInt64
	if o.epoch <= to {
		k.uncertain = append(k.uncertain, uncertain{h, o.epoch, to})
	}
}

// doubts are the Adds that may have happened in an epoch.
func (k *checker) doubts(epoch int) []uncertain {
	return slices.DeleteFunc(slices.Clone(k.uncertain), func(u uncertain) bool { return epoch < u.from || epoch > u.to })
}

// value is a counter's, which it has only once: nothing is taken off it.
type value struct {
	name string
	v    uint64
}

// resolve finds out from the true history how many Adds happened of those whose
// outcome their clients never learned. Which of them cannot be told; taking
// those that were asked for first allows the most.
func (k *checker) resolve() {
	slices.SortStableFunc(k.uncertain, func(a, b uncertain) int { return cmp.Compare(a.Call, b.Call) })
	left, at := k.doubts(0), 0
	for i := range k.log {
		e := &k.log[i]
		if epoch := k.epochOf(e.Revision); epoch != at {
			left, at = k.doubts(epoch), epoch
		}
		if e.Kind != core.EventCounter || k.values[value{scoped(e.Name, at), e.Number}] {
			continue
		}
		j := slices.IndexFunc(left, func(u uncertain) bool { return u.Name == e.Name })
		if j < 0 {
			k.c.violate("%s went to %d, but nobody asked for it", e.Name, e.Number)
			return
		}
		h := left[j].HistoryOp
		h.Name, h.Value = scoped(e.Name, at), e.Number
		left = slices.Delete(left, j, j+1)
		k.c.res.History = append(k.c.res.History, h)
	}
}

func (k *checker) reserved(call *session.Call) {
	for i := range call.Command.A {
		id := given{k.epochOf(call.Result.Revision), call.Result.Number + i}
		if k.ids[id] {
			k.c.violate("the number %d was given out twice", id.id)
		}
		k.ids[id] = true
	}
}

// finish looks at the end state: counts are exact but for what nobody knows.
func (k *checker) finish() {
	n := k.c.leader()
	if n == nil {
		k.c.violate("no leader after everything has healed")
		return
	}
	k.c.allIn(n)
	if why := k.c.unfinished(n); why != "" {
		k.c.violate("%s long after everything has healed", why)
	}
	k.limited()
	k.undecided()
	k.resolve()
	for i := range counters {
		name := fmt.Sprintf("counter-%d", i)
		got := n.replica.Machine().Read("", &core.Command{Op: core.OpCount, Count: core.CountLoad, Name: name, Unsigned: true}).Number
		if got < k.acked[name] || got > k.acked[name]+k.unsure[name] {
			k.c.violate("%s is %d at the end, with %d acknowledged and %d uncertain", name, got, k.acked[name], k.unsure[name])
		}
	}
	k.settled()
	for _, c := range k.c.clients {
		for _, o := range c.calls {
			if !o.held && o.s == c.session {
				k.c.violate("client %d still waits for seq %d (%s) long after everything has healed", c.id, o.call.Seq(), o.name)
			}
		}
	}
}
