package check

import (
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
)

// events follows, in order, the holders of every name.
func (k *Checker) events() error {
	var last core.Event
	for i, e := range k.out.Events {
		if i > 0 && (e.Revision < last.Revision || e.Revision == last.Revision && e.Ordinal <= last.Ordinal) {
			return fmt.Errorf("event %d.%d comes after %d.%d", e.Revision, e.Ordinal, last.Revision, last.Ordinal)
		}
		last = e
		if k.revision != 0 && e.Revision > k.revision+1 {
			return fmt.Errorf("event %d.%d comes after revision %d, and no event tells what changed in between", e.Revision, e.Ordinal, k.revision)
		}
		k.revision = e.Revision
		if err := k.event(e); err != nil {
			return fmt.Errorf("event %d.%d %s:%s %s: %w", e.Revision, e.Ordinal, e.Kind, e.Verb, e.Name, err)
		}
	}
	return nil
}

func (k *Checker) event(e core.Event) error {
	switch {
	case e.Kind == core.EventSession:
		return k.sessionEvent(e)
	case e.Kind == core.EventSemaphore && e.Verb == core.VerbResized:
		k.name(e).limit = int64(e.Number)
	case e.Kind == core.EventSemaphore && e.Verb == core.VerbDeleted:
		k.name(e).limit = 0
	case e.Kind > core.EventElection:
		return nil
	}
	switch e.Verb {
	case core.VerbAcquired, core.VerbUpgraded:
		return k.taken(e)
	case core.VerbExpired:
		if e.Reason == core.CodeRevoked && k.freedNow(e) {
			return nil
		}
		return k.left(e)
	case core.VerbReleased, core.VerbReclaimed:
		return k.left(e)
	case core.VerbDowngraded:
		return k.downgraded(e)
	}
	return nil
}

func (k *Checker) sessionEvent(e core.Event) error {
	s := k.session(e.Session)
	if s == nil {
		return fmt.Errorf("of an unknown session")
	}
	switch e.Verb {
	case core.VerbExpired:
		if s.deadline > k.now {
			return fmt.Errorf("at %d, but it was told to last until %d", k.now, s.deadline)
		}
		s.alive, s.over = false, true
	case core.VerbEnded:
		if !s.gaveBack && !s.revoked {
			return fmt.Errorf("nobody asked for it")
		}
		s.alive, s.over, s.ended = false, true, s.gaveBack
	}
	return nil
}

func (k *Checker) name(e core.Event) *name {
	for _, n := range k.names {
		if n.ns == e.Namespace && n.name == e.Name {
			return n
		}
	}
	n := &name{ns: e.Namespace, name: e.Name}
	k.names = append(k.names, n)
	return n
}

// taken checks a grant against everything that may be believed at this moment.
func (k *Checker) taken(e core.Event) error {
	n, c := k.name(e), k.byToken(e)
	switch {
	case k.frozen:
		return fmt.Errorf("granted while frozen")
	case e.Token != e.Revision || e.Token >= 1<<53:
		return fmt.Errorf("token %d is not its revision below 2^53", e.Token)
	case e.Token < k.token || e.Token <= n.token:
		return fmt.Errorf("token %d after %d, and %d of this name", e.Token, k.token, n.token)
	case c == nil:
		return fmt.Errorf("token %d was given to nobody", e.Token)
	case !k.aliveAt(c.s):
		return fmt.Errorf("granted to a session that has ended")
	}
	k.token, n.token = e.Token, e.Token
	if c.upgrade {
		n.holds = slices.DeleteFunc(n.holds, func(h hold) bool { return !h.ghost && h.c.s == c.s && h.mode == core.Shared })
	}
	if err := k.room(n, e, c); err != nil {
		return err
	}
	n.holds = append(n.holds, hold{c: c, token: e.Token, mode: e.Mode, weight: max(1, e.Weight)})
	return nil
}

// aliveAt says whether s lives as far as events up to now tell: an end that its
// reply told of may come later in the same entry.
func (k *Checker) aliveAt(s *session) bool {
	return s.alive || slices.ContainsFunc(k.out.Events, func(e core.Event) bool {
		return e.Kind == core.EventSession && e.Session == s.id && (e.Verb == core.VerbEnded || e.Verb == core.VerbExpired)
	})
}

func (k *Checker) byToken(e core.Event) *seenClaim {
	for _, c := range slices.Backward(k.claims) {
		if c.token == e.Token && c.s.id == e.Session && c.wantsName(e.Name) {
			return c
		}
	}
	return nil
}

// room is mutual exclusion: no holder that excludes the newcomer may still believe.
func (k *Checker) room(n *name, e core.Event, c *seenClaim) error {
	used := max(1, e.Weight)
	for _, h := range n.holds {
		if h.ghost && h.until <= k.now {
			continue
		}
		used += h.weight
		if e.Kind != core.EventSemaphore && (e.Mode == core.Exclusive || h.mode == core.Exclusive) {
			return fmt.Errorf("token %d granted while token %d holds (ghost %v until %d, now %d)", e.Token, h.token, h.ghost, h.until, k.now)
		}
	}
	if e.Kind != core.EventSemaphore {
		return nil
	}
	if n.limit == 0 {
		i := slices.IndexFunc(c.wants, func(w core.Want) bool { return w.Name == n.name })
		n.limit = c.wants[i].Limit
	}
	if n.limit != 0 && used > n.limit {
		return fmt.Errorf("token %d: %d in use of %d", e.Token, used, n.limit)
	}
	return nil
}

// left checks that a hold ended as asked, or not before its holder must know.
func (k *Checker) left(e core.Event) error {
	n := k.name(e)
	i := slices.IndexFunc(n.holds, func(h hold) bool { return h.token == e.Token })
	forced := func(c *seenClaim) bool { return c.token == e.Token && c.s.forced }
	switch {
	case i < 0 && slices.ContainsFunc(k.claims, forced):
		return nil // some of its session's holds were not waited for
	case i < 0:
		return fmt.Errorf("token %d does not hold it", e.Token)
	}
	h := n.holds[i]
	n.holds = slices.Delete(n.holds, i, i+1)
	if h.ghost {
		if h.until > k.now {
			return fmt.Errorf("token %d was to keep it taken until %d, it is %d", e.Token, h.until, k.now)
		}
		return nil
	}
	known := h.c.s.deadline <= k.now || h.c.deadline != 0 && h.c.deadline <= k.now
	if e.Verb == core.VerbReclaimed { // may come before a command that renews
		known = h.c.s.start <= k.now
	}
	asked := h.c.s.gaveBack || h.c.s.ended
	switch {
	case e.Verb == core.VerbReleased && !asked:
		return fmt.Errorf("nobody released token %d", e.Token)
	case e.Verb != core.VerbReleased && !known && !asked:
		return fmt.Errorf("token %d ended at %d; its holder believes until %d (session), %d (hold)", e.Token, k.now, h.c.s.deadline, h.c.deadline)
	}
	h.c.over = true
	if e.Kind == core.EventElection && e.Verb == core.VerbReleased && k.handsOver() {
		return nil // the name stays taken, by another
	}
	k.haunt(n, h, e.Verb != core.VerbReleased)
	return nil
}

// haunt keeps a name taken while min-hold or, after a loss, delay lasts.
func (k *Checker) haunt(n *name, h hold, lost bool) {
	h.ghost = true
	if m := h.c.cmd.MinHold; m > 0 {
		h.until = h.c.since + m
	}
	if d := h.c.cmd.Delay; lost && d > 0 {
		h.until = max(h.until, k.now+d)
	}
	if h.until > k.now {
		n.holds = append(n.holds, h)
	}
}

// freedNow: a revoked hold ended before its holder knew. That is right only if the
// command said so, or if nobody believes in it.
func (k *Checker) freedNow(e core.Event) bool {
	n := k.name(e)
	had := len(n.holds)
	n.holds = slices.DeleteFunc(n.holds, func(h hold) bool {
		return h.token == e.Token && (h.ghost || h.c.s.over || k.forcedNow(e, h.c.s))
	})
	return len(n.holds) < had
}

// forcedNow says whether a command ended the hold without asking.
func (k *Checker) forcedNow(e core.Event, s *session) bool {
	for i, f := range k.entry.Frames {
		for j, c := range f.Commands {
			force := c.Op == core.OpForce && c.Token == e.Token && c.Flags&core.Now != 0
			if force && k.out.Replies[i].Results[j].Code == core.CodeOK {
				return true
			}
		}
	}
	return s.forced
}

// downgraded makes a hold shared; a cancelled upgrade comes back with its old
// token.
func (k *Checker) downgraded(e core.Event) error {
	n := k.name(e)
	for i, h := range n.holds {
		if h.ghost || h.c.s.id != e.Session || h.mode != core.Exclusive {
			continue
		}
		if h.token != e.Token {
			if h.c = k.byToken(e); h.c == nil {
				return fmt.Errorf("token %d was never given", e.Token)
			}
			h.c.over = false
		}
		h.token, h.mode = e.Token, core.Shared
		n.holds[i] = h
		return nil
	}
	return fmt.Errorf("token %d does not hold it", e.Token)
}
