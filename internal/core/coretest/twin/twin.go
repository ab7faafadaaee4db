// Package twin is a second, naive implementation of the rules of package core,
// to check the machine against.
//
// Give [Twin.Apply] the same entries as core.Machine and compare: both must
// answer, push and tell the same. The twin is written from the design, not from
// the machine: plain slices, full scans, no index, no heap, nothing remembered
// that can be found by looking. It is slow on purpose and meant to be read; of
// package core it uses only types and constants.
package twin

import (
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Config is what the machine under test was made with.
type Config struct {
	Revision uint64 // the first change takes it; 0 means 1
	Budget   int    // of one entry: sessions plus claims ended, keys deleted by prefix, grants
	Window   uint64 // granted to a session that asks for none, and the most
	Waiters  int    // most waiting claims of a name
	Result   int    // bytes that a transaction may tell; 0 means 1 MiB
	// Quotas of a namespace, and of a session: holds and waits; 0: none.
	Sessions, Names, Keys, Holds int
}

// Entry is a core.Entry with its frames decoded.
type Entry struct {
	Kind     core.EntryKind
	Now      int64
	Seconds  int64
	Revision uint64
	Renewals []core.Renewal
	Frames   []core.Frame
}

// Output is what one entry brings about.
type Output struct {
	Replies []core.Reply
	Renewed []core.Renewed
	Pushes  []core.Push
	Events  []core.Event
}

// Twin is the state.
type Twin struct {
	cfg       Config
	now       int64
	revision  uint64
	ordinal   uint32 // next within the revision
	arrivals  uint64
	decisions int
	budget    int        // what this entry may still end
	deletes   int        // and how many keys it may still delete by prefix
	serves    int        // steps in which it may still grant to waiters
	frozen    bool       // nothing is granted
	sessions  []*session // as they were opened
	gone      []tombstone
	claims    []*claim // waiting or taking up room, by arrival
	names     []*name
	keys      []*key
	uses      []*use // keys of limiters that are not forgotten
	left      int    // keys of limiters that are gone
	limiters  uint64 // rates that were ever set
	out       Output
}

// name is an object that is known by a name: a resource, counter or sequence.
type name struct {
	ns, name string
	kind     core.Kind
	limit    int64         // semaphore: capacity; barrier: parties; latch: what is left
	number   uint64        // counter: its value; sequence: the next number; limiter: which rate it is
	unsigned bool          // counter
	ask      core.LimitAsk // limiter: the one that set its rate
	touched  bool          // something was given up here: dead waiters in front are dropped
}

// New returns an empty twin.
func New(c Config) *Twin {
	return &Twin{cfg: c, revision: max(1, c.Revision) - 1}
}

// Now is cluster time, Revision the last change.
func (t *Twin) Now() int64 { return t.now }

// Revision is the last change.
func (t *Twin) Revision() uint64 { return t.revision }

// Apply takes one entry: renewals, then commands, then what is past its
// deadline.
func (t *Twin) Apply(e Entry) Output {
	t.out = Output{}
	t.now = max(t.now, e.Now)
	t.budget, t.deletes, t.serves = t.cfg.Budget, t.cfg.Budget, t.cfg.Budget
	switch e.Kind {
	case core.EntryFreeze:
		t.frozen = true
	case core.EntryUnfreeze:
		t.unfreeze()
	case core.EntryForget:
		t.forget(e.Seconds)
	case core.EntryRaise:
		if e.Revision > t.revision {
			t.revision, t.ordinal = e.Revision, 0
		}
	}
	for _, r := range e.Renewals {
		t.renew(r)
	}
	if e.Kind == core.EntryCommands {
		t.settle() // what the entry before had no steps left for
		t.sweep()
	}
	for _, f := range e.Frames {
		t.frame(f)
	}
	t.endPass()
	return t.out
}

// unfreeze grants what could not be granted meanwhile.
func (t *Twin) unfreeze() {
	t.frozen = false
	t.settle()
}

// forget ends all sessions with everything that hangs on them, and jumps to a
// revision that no earlier token can have.
func (t *Twin) forget(seconds int64) {
	t.keys = slices.DeleteFunc(t.keys, func(k *key) bool { return k.Session != core.SessionID{} })
	for _, s := range t.sessions {
		if !s.ending {
			t.gone = append(t.gone, tombstone{s.id, t.now + remember})
		}
	}
	t.sessions, t.claims = nil, nil
	t.sweep()
	if now := uint64(seconds) << 20; now >= 1<<40 && now > t.revision {
		t.revision = now
	} else {
		t.revision += 1 << 40
	}
	t.ordinal = 0
}

// next takes a revision for a change.
func (t *Twin) next() uint64 {
	t.revision++
	t.ordinal = 0
	return t.revision
}

// event tells e at the last revision.
func (t *Twin) event(e core.Event) {
	e.Revision, e.Ordinal = t.revision, t.ordinal
	t.ordinal++
	t.out.Events = append(t.out.Events, e)
}

// push tells the session of c what became of it.
func (t *Twin) push(c *claim, state core.ClaimState, code core.Code) {
	if c.s == nil {
		return
	}
	t.out.Pushes = append(t.out.Pushes, core.Push{
		Session: c.s.id, Seq: c.seq, State: state, Code: code, Token: c.token, Deadline: c.ownDeadline(),
	})
}

func (t *Twin) find(ns, n string) *name {
	for _, o := range t.names {
		if o.ns == ns && o.name == n {
			return o
		}
	}
	return nil
}

// above says whether a quota does not allow n.
func above(n, quota int) bool { return quota > 0 && n > quota }

// crowded says whether a namespace cannot have so many names more.
func (t *Twin) crowded(ns string, more int) bool {
	for _, n := range t.names {
		if n.ns == ns {
			more++
		}
	}
	return above(more, t.cfg.Names)
}

// sweep forgets names of locks and elections that nobody holds or awaits, and
// notes which stale sessions have nothing left to keep.
func (t *Twin) sweep() {
	for _, s := range t.sessions {
		kept := s.reclaimable || s.stale && s.policy == core.Never
		if kept && !s.ending && s.emptied == 0 && !t.keeps(s) {
			s.emptied = t.now
		}
	}
	t.names = slices.DeleteFunc(t.names, func(n *name) bool {
		lock := n.kind == core.Mutex || n.kind == core.RWMutex || n.kind == core.Election
		return lock && !t.inUse(n)
	})
}

// inUse says whether any claim is about n.
func (t *Twin) inUse(n *name) bool {
	return slices.ContainsFunc(t.claims, func(c *claim) bool { return c.about(n) })
}
