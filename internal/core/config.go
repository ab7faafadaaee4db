package core

import "math"

// Config is what a machine is made with. All nodes of a group must be made with
// the same one; a snapshot carries it along.
type Config struct {
	// Revision is the first that a new machine gives; 0 means 1.
	Revision uint64
	// Window is how many numbers a session may have unacknowledged, and the
	// most that it can ask for; 0 means 1,024.
	Window uint64
	// Waiters is how many claims may wait for one name; 0 means 10,000.
	Waiters int
	// Budget is how many sessions, claims and keys one entry ends, tells stale or
	// revokes with their session, at most, how many grants it makes to
	// waiters, and how many keys it deletes by prefix; 0 means 10,000. What is left of
	// ends and grants is due at once; of a delete with a limit it is left to the next.
	// What must be done as a whole is refused if it is more: a delete without a limit,
	// a barrier of more parties, a resize that more waiters are too heavy for.
	Budget int
	// MaxTTL bounds a session's TTL and every other time span that a session
	// asks for itself, in nanoseconds; 0 means 24 h. A renewal asking for more
	// gets this.
	MaxTTL int64
	// EndedFor is how long the id of an ended session stays refused, in
	// nanoseconds; 0 means ten minutes. Ended bounds how many ids a namespace
	// remembers, the oldest go first; 0 means 100,000.
	EndedFor int64
	Ended    int
	// Name and Meta bound names, owners and identities, and metadata, in bytes;
	// 0 means 512 and 4,096. Ops bounds the compares and operations of one
	// transaction together, and the names of one claim; 0 means 128.
	Name, Meta, Ops int
	// Result is about how many bytes of keys one result returns, and with it how
	// many keys one transaction looks at: 10,000 a MiB. A range in order of key that
	// meets either end is cut, and More says so; all else that does not fit refuses
	// the transaction. 0 means 1 MiB.
	Result int
	// Sessions, Names and Keys are quotas of each namespace, Holds is one of each
	// session: how many claims it may have, held or waiting; 0 means no bound. An upgrade that
	// waits is one beside the shared claim that it is to replace. The keys of one session
	// have no bound of their own. These and Waiters change with an EntryQuota.
	Sessions, Names, Keys, Holds int
	// Idle is how many free names are remembered to make their next use cheap;
	// 0 means 131,072. It changes no answer.
	Idle int
}

func (c Config) withDefaults() Config {
	or(&c.Revision, 1)
	or(&c.Window, 1024)
	or(&c.Waiters, 10_000)
	or(&c.Budget, 10_000)
	or(&c.MaxTTL, 24*3600*second)
	or(&c.EndedFor, 600*second)
	or(&c.Ended, 100_000)
	or(&c.Name, 512)
	or(&c.Meta, 4096)
	or(&c.Ops, 128)
	or(&c.Result, 1<<20)
	or(&c.Sessions, math.MaxInt)
	or(&c.Names, math.MaxInt)
	or(&c.Keys, math.MaxInt)
	or(&c.Holds, math.MaxInt)
	or(&c.Idle, 131_072)
	return c
}

const second = int64(1_000_000_000)

func or[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Quota is what an EntryQuota sets of a machine's Config; 0 leaves as it is.
type Quota struct {
	Sessions, Names, Keys, Holds, Waiters int
	// LimitKeys is of each namespace: how many keys its limiters may remember. It is
	// set by entries only, from version 3 on.
	LimitKeys int
}

// fields are those of q, in the order of their encoding.
func (q *Quota) fields() [6]*int {
	return [...]*int{&q.Sessions, &q.Names, &q.Keys, &q.Holds, &q.Waiters, &q.LimitKeys}
}

// fieldsOf are those that an entry of a version has.
func (q *Quota) fieldsOf(version uint8) []*int {
	fields := q.fields()
	if version < 3 {
		return fields[:5]
	}
	return fields[:]
}

// Quota is what is in force. What has no bound is at the greatest int.
func (m *Machine) Quota() Quota {
	c := &m.cfg
	return Quota{Sessions: c.Sessions, Names: c.Names, Keys: c.Keys, Holds: c.Holds, Waiters: c.Waiters, LimitKeys: m.limitKeys}
}

// With is q changed by what another sets.
func (q Quota) With(o Quota) Quota {
	for i, n := range o.fields() {
		if *n > 0 {
			*q.fields()[i] = *n
		}
	}
	return q
}

// setQuota takes quotas for what is asked for from now on; a namespace that has more
// loses anything.
func (m *Machine) setQuota(q Quota) {
	q = m.Quota().With(q)
	m.cfg.Sessions, m.cfg.Names, m.cfg.Keys, m.cfg.Holds, m.cfg.Waiters = q.Sessions, q.Names, q.Keys, q.Holds, q.Waiters
	m.limitKeys = q.LimitKeys
}
