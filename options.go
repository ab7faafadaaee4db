package holdfast

import (
	"iter"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// Option sets up a Space: [TTL], [Owner], [Meta], [Require], [Hooks]. A nil option, of
// this or any other kind, sets nothing: a program may leave one out by a condition.
type Option interface{ open(*setup) }

// HoldOption shapes what is held: [TTL], [Owner], [Meta], [MaxHold], [MinHold],
// [Delay], [ManualRenew], [ReclaimOnDemand], [ReclaimNever], [Reentrant],
// [OnWait], [Under]. Given to [Space.With]
// it is the default of everything made from that Space.
type HoldOption interface{ hold(*config) }

// SessionOption shapes an explicit session: [TTL], [Owner], [Meta],
// [ManualRenew], [ReclaimOnDemand], [ReclaimNever].
type SessionOption interface{ session(*config) }

// PutOption says when a key ends: [Expire], [Under].
type PutOption interface{ put(*putting) }

// UnderOption is both: see [Under].
type UnderOption interface {
	HoldOption
	PutOption
}

// given are the options that are not nil.
func given[O any](opts []O) iter.Seq[O] {
	return func(yield func(O) bool) {
		for _, o := range opts {
			if any(o) != nil && !yield(o) {
				return
			}
		}
	}
}

// TTL is how long a session outlives its last renewal: 1 second to 24
// hours, 30 seconds unless set. A shorter one frees a crashed holder's names
// sooner and tolerates only shorter outages. Backends may narrow the range: a
// group of Holdfast nodes takes 5 seconds at least unless its server.Config.MinTTL says
// otherwise, a node alone 1 second, and less is ErrInvalid by the first call that
// opens a session. On files and
// PostgreSQL the TTL is ignored: the kernel or the connection tells that a holder has
// ended. Holds that differ in it do not share a session, so keep it to a few distinct values.
type TTL time.Duration

func (t TTL) open(s *setup)     { t.hold(&s.config) }
func (t TTL) session(c *config) { t.hold(c) }
func (t TTL) hold(c *config) {
	c.spec.TTL, c.ttlSet = time.Duration(t), true
}

// Owner names the holder for people; it decides nothing. It is text of up to 512
// bytes without control characters; the default is host/pid/program. Holds that differ in it do not share a session, and a session is renewed
// until its Space is closed: keep it to a few distinct values, and what differs by request
// to a [Space.Session] that is ended.
type Owner string

func (o Owner) open(s *setup)     { o.hold(&s.config) }
func (o Owner) session(c *config) { o.hold(c) }
func (o Owner) hold(c *config)    { c.spec.Owner = string(o) }

// Meta is carried along and shown with every hold, as text of up to 4 KiB. Holds that
// differ in it do not share a session, so keep it to a few distinct values.
type Meta string

func (m Meta) open(s *setup)     { m.hold(&s.config) }
func (m Meta) session(c *config) { m.hold(c) }
func (m Meta) hold(c *config)    { c.spec.Meta = string(m) }

// MaxHold ends a hold this long after its grant or last [Hold.Extend], however
// alive its holder is: 100 milliseconds to 70 years; 0, the default: never. The holder
// takes it for over two percent and 50 milliseconds before the backend does, counted from when
// it asked. Backends without the feature "max-hold" refuse it with errors.ErrUnsupported.
type MaxHold time.Duration

func (d MaxHold) hold(c *config) { c.maxHold = time.Duration(d) }

// MinHold keeps a name taken this long after its grant, released or not, so that a
// job which several machines start at noon by their own clocks runs once: give more
// than the clocks differ. 1 millisecond to 70 years; 0, the default: not at all.
// Backends without the feature "min-hold" refuse it with errors.ErrUnsupported.
type MinHold time.Duration

func (d MinHold) hold(c *config) { c.minHold = time.Duration(d) }

// Delay keeps a name from everybody this long after it was lost (not after a
// release), for what the lost holder still has in flight: 1 millisecond to 70 years;
// 0, the default: not at all. Backends without the feature "delay" refuse it with
// errors.ErrUnsupported. It begins when the backend ends
// the hold, by its TTL or its [MaxHold], which is a little after its holder's own
// deadline; what shares its session is not free before that either. [Hold.Release],
// also of a hold that was forced, [Session.Revoke] and [Space.Close] give back what was
// not lost before, without a delay.
type Delay time.Duration

func (d Delay) hold(c *config) { c.delay = time.Duration(d) }

// LivenessOption says how a session is kept and what becomes of it: see
// [ManualRenew], [ReclaimOnDemand], [ReclaimNever].
type LivenessOption interface {
	HoldOption
	SessionOption
}

type liveness func(*config)

func (f liveness) hold(c *config)    { f(c) }
func (f liveness) session(c *config) { f(c) }

type holdFunc func(*config)

func (f holdFunc) hold(c *config) { f(c) }

// ManualRenew leaves renewal to the caller. A hold gets a session of its own,
// which ends after TTL unless [Hold.Renew] is called; until the grant it is kept
// alive. A [Session] ends after TTL unless [Session.Keep] is called. Backends on
// which the kernel or a connection is the liveness (files, PostgreSQL) refuse it.
func ManualRenew() LivenessOption { return liveness(func(c *config) { c.spec.Manual = true }) }

// ReclaimOnDemand keeps the names of a holder after its TTL until another
// caller wants them and grace, of 0 to the greatest TTL that the backend takes (24 h or less), has
// passed as well: nobody waits, nothing is freed.
// The backend shows such a hold as stale; the holder itself has lost it at its
// TTL, as always. Its session, and the keys under it, end at most ten minutes after
// the last name was taken, unless the holder comes back: until then it learns what
// became of its holds. Backends without the feature "reclaim" refuse it.
func ReclaimOnDemand(grace time.Duration) LivenessOption {
	return liveness(func(c *config) { c.spec.Policy, c.spec.Grace, c.graceSet = driver.OnNextAcquire, grace, true })
}

// ReclaimNever keeps the names of a holder after its TTL until an operator
// frees them by [Space.ForceRelease]. Its session, and the keys under it, end at most
// ten minutes after the last name was freed, as with [ReclaimOnDemand]. Backends
// without the feature "reclaim" refuse it.
func ReclaimNever() LivenessOption {
	return liveness(func(c *config) { c.spec.Policy = driver.Never })
}

// Reentrant lets an Acquire with a context from [Hold.Bind] or Do of the
// same resource join that hold instead of waiting for it: counted, and the last
// Release frees. Without it such an Acquire waits for itself.
func Reentrant() HoldOption { return holdFunc(func(c *config) { c.reentrant = true }) }

// OnWait calls f when an Acquire has to queue, with its place, 1 being next. f is
// called in the goroutine of the Acquire, which does not return before f does, also
// when it was granted meanwhile. If f panics, or ends the goroutine by
// [runtime.Goexit], the wait is taken back, or what it was granted, before that
// goes on.
func OnWait(f func(position int)) HoldOption {
	return holdFunc(func(c *config) { c.onWait = f })
}

type under struct{ s *Session }

func (u under) hold(c *config) {
	if c.under = u.s; u.s == nil {
		c.err = firstError(c.err, errNoSession)
	}
}

func (u under) put(p *putting) {
	if p.session = u.s; u.s == nil {
		p.err = errNoSession
	}
}

var errNoSession = invalid("Under: the session is nil")

// Under hangs holds, or a key, on s: they end with it. Options of the session
// (TTL, Owner, Meta) then come from s. Given to [Space.With] it is for what is
// held, not for keys.
func Under(s *Session) UnderOption { return under{s} }

type openFunc func(*setup)

func (f openFunc) open(s *setup) { f(s) }

// Require makes Open fail unless the backend has all these features, so that a
// program learns it at its start, not at the first call that needs one.
func Require(features ...Feature) Option {
	return openFunc(func(s *setup) { s.require = append(s.require, features...) })
}

// Expire ends a key this long after it was put, without a session: 1 millisecond to
// 70 years; anything else, 0 too, is ErrInvalid. Without it a key has no end of its
// own. How late the end is told differs by backend: docs/backends.md.
type Expire time.Duration

func (d Expire) put(p *putting) { p.expire, p.expireSet = time.Duration(d), true }
