package pipeline

import (
	"slices"

	"github.com/holdfast-io/holdfast/guard"
)

// Waits is the condition that a run in that state waits for; nil: it waits for none. A semaphore
// that nobody has used yet has in it the limit by which a phase of the definition holds it.
func (d *Definition) Waits(s *State) *guard.Condition {
	i := d.find(s.Phase)
	if i < 0 {
		return nil
	}
	c := map[Status]*guard.Condition{Blocked: d.Phases[i].When, Verifying: d.Phases[i].Until}[s.Status]
	if c == nil {
		return nil
	}
	whole := c.WithLimits(d.limitOf)
	return &whole
}

// limitOf is the limit by which phases hold a semaphore; 0: none does.
func (d *Definition) limitOf(name string) int64 {
	for i := range d.Phases {
		for _, w := range d.Phases[i].Holds {
			if w.Kind == "semaphore" && w.Name == name {
				return w.Limit
			}
		}
	}
	return 0
}

// when is what has to pass. What the phase has itself counts as free: a lock is not taken because
// the phase has it, and what it has of a semaphore or took from a limiter is added to what is left.
func (m *step) when() *guard.Condition {
	c := m.d.Waits(&m.s)
	if m.s.Token == 0 && !m.reserved {
		return c
	}
	without := m.granted(*c, true)
	return &without
}

// granted is a condition, which is wanted or under a Not, without what the phase has itself.
func (m *step) granted(c guard.Condition, wanted bool) guard.Condition {
	switch {
	case c.Kind == guard.KindAll || c.Kind == guard.KindAny || c.Kind == guard.KindNot:
		parts := make([]guard.Condition, len(c.Of))
		for i := range c.Of {
			parts[i] = m.granted(c.Of[i], wanted != (c.Kind == guard.KindNot))
		}
		c.Of = parts
		return c
	case c.Kind == guard.KindSemaphoreAvailable || c.Kind == guard.KindLimitAvailable:
		return less(c, m.own(&c))
	case m.hasLock(&c) && wanted:
		return guard.All()
	case m.hasLock(&c):
		return guard.Any()
	}
	return c
}

// less is a leaf about an amount of which the phase has some itself.
func less(c guard.Condition, own int64) guard.Condition {
	if c.Amount -= own; c.Amount <= 0 {
		return guard.All()
	}
	return c
}

// own is what the phase has of the semaphore or limiter that a leaf asks for.
func (m *step) own(c *guard.Condition) int64 {
	p := m.phase()
	if c.Kind == guard.KindSemaphoreAvailable {
		i := slices.IndexFunc(p.Holds, func(w Want) bool { return w.Kind == "semaphore" && w.Name == c.Name })
		if i < 0 || m.s.Token == 0 {
			return 0
		}
		return p.Holds[i].Weight
	}
	if i := ownLimit(p, c); i >= 0 && m.reserved {
		return p.Limits[i].Cost
	}
	return 0
}

// ownLimit is the limit of the phase that a leaf is about; -1: there is none.
func ownLimit(p *Phase, c *guard.Condition) int {
	return slices.IndexFunc(p.Limits, func(l Limit) bool {
		return c.Kind == guard.KindLimitAvailable && l.Limiter == c.Name && l.Key == c.Other
	})
}

// hasLock: the leaf is about a lock that the phase has itself. One that it reads is without a writer;
// whether there are other readers a leaf cannot ask for, so that it counts as free, but what is said
// of its holders stays as it is found.
func (m *step) hasLock(c *guard.Condition) bool {
	return m.s.Token != 0 && slices.ContainsFunc(m.phase().Holds, func(w Want) bool {
		exclusive := w.Kind == "lock" || w.Kind == "write"
		return w.Name == c.Name && (c.Kind == guard.KindLockFree && w.Kind != "semaphore" || c.Kind == guard.KindLockHeldBy && exclusive)
	})
}

// first: it is the first time since the run is blocked that its condition has not passed, and that
// may have been looked at with what was taken from a limiter. That is given back now, so that the
// condition counts as it stands.
func (m *step) first(e *Event) bool {
	p := m.phase()
	return m.s.Reason == "" && e.Reason != "" && len(p.Limits) > 0 && has(p.When, func(c *guard.Condition) bool { return ownLimit(p, c) >= 0 })
}

// has reports that a leaf of the condition is so.
func has(c *guard.Condition, is func(*guard.Condition) bool) bool {
	if len(c.Of) == 0 {
		return is(c)
	}
	return slices.ContainsFunc(c.Of, func(part guard.Condition) bool { return has(&part, is) })
}
