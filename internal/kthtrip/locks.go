package kthtrip

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// Operation is something that a client does. Run sets it up undisturbed, arms the
// fault, does it, and looks whether what it said is true.
type Operation struct {
	Name  string
	Needs driver.Feature // of the backend; "": every one has it
	Run   func(x *trial)
}

// in reports that a backend has what the operation needs.
func (o Operation) in(s *holdfast.Space) bool { return o.Needs == "" || s.Info().Features[o.Needs] }

// operations are those of Run.
func operations() []Operation {
	var all []Operation
	for _, k := range kinds {
		for _, what := range slices.Sorted(maps.Keys(onLocks)) {
			all = append(all, Operation{k.name + " " + what, k.needs, func(x *trial) { onLocks[what](x, k) }})
		}
	}
	return slices.Concat(all, others, onData, onLimits, onMany)
}

// named are those of all that are to be tried.
func named(all []Operation) []Operation {
	asked := regexp.MustCompile(*only)
	return slices.DeleteFunc(all, func(o Operation) bool { return !asked.MatchString(o.Name) })
}

// take is a way to hold a name.
type take func(ctx context.Context, s *holdfast.Space, name string, try bool, opts ...holdfast.HoldOption) (*holdfast.Hold, error)

// kind is a kind of name that can be held.
type kind struct {
	name   string
	needs  driver.Feature
	some   take // what the subject takes
	all    take // what excludes it
	delete func(ctx context.Context, s *holdfast.Space, name string) error
}

// name is one that both clients use.
type name struct {
	kind
	text string
}

func (n name) all(ctx context.Context, s *holdfast.Space, try bool) (*holdfast.Hold, error) {
	return n.kind.all(ctx, s, n.text, try)
}

// name makes a name of a kind, which has to be free when the trial is over.
func (x *trial) name(k kind, text string) name {
	n := name{k, x.prefix + text}
	x.names = append(x.names, n)
	return n
}

const units = 3 // of the semaphore

var mutexes = kind{name: "mutex", some: takeMutex, all: takeMutex}

var elections = kind{name: "election", needs: driver.FeatureElection, some: takeLead, all: takeLead}

var semaphores = kind{name: "semaphore", needs: driver.FeatureWeighted, some: takeUnits(1), all: takeUnits(units),
	delete: func(ctx context.Context, s *holdfast.Space, name string) error {
		return s.Semaphore(name, 0).Delete(ctx)
	}}

var kinds = []kind{
	mutexes,
	{name: "reader", needs: driver.FeatureShared, some: takeRead, all: takeWrite},
	{name: "writer", needs: driver.FeatureShared, some: takeWrite, all: takeWrite},
	semaphores,
	elections,
}

func takeMutex(ctx context.Context, s *holdfast.Space, name string, try bool, opts ...holdfast.HoldOption) (*holdfast.Hold, error) {
	if m := s.Mutex(name, opts...); try {
		return m.TryAcquire(ctx)
	} else {
		return m.Acquire(ctx)
	}
}

func takeRead(ctx context.Context, s *holdfast.Space, name string, try bool, opts ...holdfast.HoldOption) (*holdfast.Hold, error) {
	if m := s.RWMutex(name, opts...); try {
		return m.Reader().TryAcquire(ctx)
	} else {
		return m.Reader().Acquire(ctx)
	}
}

func takeWrite(ctx context.Context, s *holdfast.Space, name string, try bool, opts ...holdfast.HoldOption) (*holdfast.Hold, error) {
	if m := s.RWMutex(name, opts...); try {
		return m.Writer().TryAcquire(ctx)
	} else {
		return m.Writer().Acquire(ctx)
	}
}

func takeUnits(n int64) take {
	return func(ctx context.Context, s *holdfast.Space, name string, try bool, opts ...holdfast.HoldOption) (*holdfast.Hold, error) {
		if m := s.Semaphore(name, units, opts...); try {
			return m.TryAcquire(ctx, n)
		} else {
			return m.Acquire(ctx, n)
		}
	}
}

func takeLead(ctx context.Context, s *holdfast.Space, name string, try bool, opts ...holdfast.HoldOption) (*holdfast.Hold, error) {
	campaign := s.Election(name, opts...).Campaign
	if try {
		campaign = s.Election(name, opts...).TryCampaign
	}
	l, err := campaign(ctx, nil)
	if err != nil {
		return nil, err
	}
	return l.Hold, nil
}

// onLocks is what is done with every kind of name that can be held.
var onLocks = map[string]func(x *trial, k kind){
	"acquire": func(x *trial, k kind) {
		n := x.name(k, "free")
		x.arm()
		h, err := n.some(x.ctx, x.client(), n.text, false)
		x.got(h, err, n)
	},
	"second acquire": func(x *trial, k kind) {
		n := x.name(k, "free")
		x.warm()
		x.arm()
		h, err := n.some(x.ctx, x.client(), n.text, false)
		x.got(h, err, n)
	},
	"try of a free one": func(x *trial, k kind) {
		n := x.name(k, "free")
		x.warm()
		x.arm()
		h, err := n.some(x.ctx, x.client(), n.text, true)
		x.got(h, err, n)
	},
	"try of a held one": func(x *trial, k kind) {
		n := x.name(k, "held")
		hold := x.takes(n)
		x.warm()
		x.arm()
		h, err := n.some(x.ctx, x.client(), n.text, true)
		x.refused(h, err, hold)
	},
	"wait": func(x *trial, k kind) {
		n := x.name(k, "held")
		hold := x.takes(n)
		x.warm()
		x.arm()
		h, err := n.some(x.ctx, x.client(), n.text, false, holdfast.OnWait(func(int) { go hold.Release() }))
		x.must("release", hold.Release())
		x.got(h, err, n)
	},
	"cancel of a wait": func(x *trial, k kind) {
		n := x.name(k, "held")
		hold := x.takes(n)
		x.warm()
		ctx, cancel := context.WithCancel(x.ctx)
		defer cancel()
		x.arm()
		h, err := n.some(ctx, x.client(), n.text, false, holdfast.OnWait(func(int) { cancel() }))
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			x.said(nil) // as it was asked to
		} else if x.said(err) == nil {
			x.broken("it was granted while another held it, with the token %d", h.Token())
		}
		x.must("release", hold.Release())
	},
	"release": func(x *trial, k kind) {
		n := x.name(k, "mine")
		h := x.has(n.some, n.text)
		x.excludes(n, h)
		x.arm()
		x.released(x.said(h.Release()), n)
	},
}

// warm has the subject open its session and whatever else comes first.
func (x *trial) warm() {
	h := x.has(takeMutex, x.prefix+"warm")
	x.must("the first release", h.Release())
}

// has has the subject hold a name, undisturbed: a slow machine may need more than
// one try.
func (x *trial) has(t take, name string, opts ...holdfast.HoldOption) (h *holdfast.Hold) {
	x.must("acquire", x.eventually(func() (err error) {
		h, err = t(x.ctx, x.client(), name, false, opts...)
		return err
	}))
	return h
}

// takes has the bystander hold all of a name.
func (x *trial) takes(n name) *holdfast.Hold {
	h, err := n.all(x.ctx, x.other(), false)
	x.must("acquire", err)
	return h
}

// refused: a try of what another holds is refused, or fails, and is never granted.
func (x *trial) refused(h *holdfast.Hold, err error, hold *holdfast.Hold) {
	if errors.Is(err, holdfast.ErrHeld) {
		x.said(nil)
	} else if x.said(err) == nil {
		x.broken("it was granted with the token %d while another holds it with %d", h.Token(), hold.Token())
		_ = h.Release()
	}
	x.must("release", hold.Release())
}

// refusesAll: a try of several names of which b is held takes none.
func (x *trial) refusesAll(b name, wants ...holdfast.Want) {
	hold := x.takes(b)
	x.warm()
	x.arm()
	h, err := x.client().TryAcquireAll(x.ctx, wants...)
	x.refused(h, err, hold)
}

// others are operations on names that need no kind.
var others = []Operation{
	{Name: "open", Run: func(x *trial) {
		x.path.Arm(x.k, x.fault)
		x.armed = true
		_ = x.said(x.open())
	}},
	{Name: "ping", Run: func(x *trial) {
		x.arm()
		_ = x.said(x.client().Ping(x.ctx))
	}},
	{Name: "acquire several", Needs: driver.FeatureAll, Run: func(x *trial) {
		a, b := x.name(mutexes, "a"), x.name(mutexes, "b")
		x.warm()
		x.arm()
		h, err := x.client().AcquireAll(x.ctx, x.client().Mutex(b.text).Want(), x.client().Mutex(a.text).Want())
		x.got(h, err, a, b)
	}},
	{Name: "try several, one of them held", Needs: driver.FeatureAll, Run: func(x *trial) {
		a, b := x.name(mutexes, "a"), x.name(mutexes, "b")
		x.refusesAll(b, x.client().Mutex(a.text).Want(), x.client().Mutex(b.text).Want())
	}},
	{Name: "try several semaphores, one of them full", Needs: driver.FeatureWeighted, Run: func(x *trial) {
		a, b := x.name(semaphores, "a"), x.name(semaphores, "b")
		x.refusesAll(b, x.client().Semaphore(a.text, units).Want(1), x.client().Semaphore(b.text, units).Want(1))
	}},
	{Name: "renew", Needs: driver.FeatureSession, Run: func(x *trial) {
		n := x.name(mutexes, "mine")
		if x.client().Info().MaxTTL == 0 { // then there is nothing to renew but a session
			s, h := x.session(n)
			x.arm()
			_ = x.said(s.Keep(x.ctx))
			x.excludes(n, h)
			x.released(h.Release(), n)
			return
		}
		h := x.has(takeMutex, n.text, holdfast.ManualRenew())
		before, ends := h.Deadline()
		x.arm()
		err := x.said(h.Renew(x.ctx, 2*TTL))
		if after, _ := h.Deadline(); err == nil && ends && !after.After(before) {
			x.broken("a renewal that succeeded moved the deadline from %s to %s", before, after)
		}
		x.excludes(n, h)
		x.released(h.Release(), n)
	}},
	{Name: "proclaim", Needs: driver.FeatureElection, Run: proclaim},
	{Name: "hand over", Needs: driver.FeatureElection, Run: handOver},
	{Name: "inspect", Run: func(x *trial) {
		n := x.name(mutexes, "held")
		hold := x.takes(n)
		x.client()
		x.arm()
		r, err := x.client().Inspect(x.ctx, n.text)
		if x.said(err) == nil && (len(r.Holders) != 1 || r.Holders[0].Token != hold.Token()) {
			x.broken("Inspect tells %+v of a name that is held with the token %d", r.Holders, hold.Token())
		}
		x.must("release", hold.Release())
	}},
	{Name: "force release", Needs: driver.FeatureForce, Run: func(x *trial) { force(x) }},
	{Name: "force release now", Needs: driver.FeatureForce, Run: func(x *trial) { force(x, holdfast.ForceNow()) }},
	{Name: "session", Needs: driver.FeatureSession, Run: func(x *trial) {
		x.warm()
		x.arm()
		s, err := x.client().Session(x.ctx, holdfast.TTL(TTL))
		if x.said(err) == nil {
			x.must("revoke", s.Revoke())
		}
	}},
	{Name: "revoke", Needs: driver.FeatureSession, Run: func(x *trial) {
		n := x.name(mutexes, "mine")
		s, h := x.session(n)
		x.arm()
		err := x.said(s.Revoke())
		if x.lasts(h) {
			x.broken("the hold lasts after its session was revoked: %v", err)
		}
		x.released(err, n)
	}},
	{Name: "close", Run: func(x *trial) {
		n, waited := x.name(mutexes, "mine"), x.name(mutexes, "held")
		hold := x.takes(waited)
		h := x.has(takeMutex, n.text)
		waits, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := x.subject.Mutex(waited.text, holdfast.OnWait(func(int) { close(waits) })).Acquire(x.ctx)
			ended <- err
		}()
		<-waits
		x.arm()
		_ = x.said(x.subject.Close())
		x.subject = nil
		if x.lasts(h) {
			x.broken("the hold lasts after its Space was closed")
		}
		if err := <-ended; err == nil {
			x.broken("a wait was granted by Close")
		}
		x.must("release", hold.Release())
	}},
}

// proclaim: what a leader proclaimed is what others see.
func proclaim(x *trial) {
	n := x.name(elections, "lead")
	l := &holdfast.Leadership{Hold: x.has(takeLead, n.text)}
	x.arm()
	err := x.said(l.Proclaim(x.ctx, []byte("new")))
	if is, look := x.other().Election(n.text).Leader(x.ctx); look == nil && x.lasts(l.Hold) {
		x.told(err, string(is.Value), "", "new")
	}
	x.released(l.Release(), n)
}

// handOver: the candidate leads, or the leader still does, and never both.
func handOver(x *trial) {
	n := x.name(elections, "lead")
	l := &holdfast.Leadership{Hold: x.has(takeLead, n.text)}
	waits, elected := make(chan struct{}), make(chan *holdfast.Leadership, 1)
	go func() {
		next, _ := x.other().Election(n.text, holdfast.Owner("next"), holdfast.OnWait(func(int) { close(waits) })).Campaign(x.ctx, nil)
		elected <- next
	}()
	<-waits
	x.arm()
	err := x.said(l.HandOver(x.ctx, "next"))
	if is, look := x.other().Election(n.text).Leader(x.ctx); look == nil && is.Token != l.Token() && x.lasts(l.Hold) {
		x.broken("two lead after %v, with the tokens %d and %d", err, l.Token(), is.Token)
	} else if look == nil && is.Token == l.Token() && err == nil {
		x.broken("it was not handed over")
	}
	_ = l.Release()
	next := <-elected
	if next == nil {
		x.broken("the candidate is not elected after the leader left")
	}
	x.must("resign", next.Resign())
}

// session opens a session of the subject with a hold.
func (x *trial) session(n name) (s *holdfast.Session, h *holdfast.Hold) {
	x.must("session", x.eventually(func() (err error) {
		s, err = x.client().Session(x.ctx, holdfast.TTL(TTL))
		return err
	}))
	return s, x.has(takeMutex, n.text, holdfast.Under(s))
}

// force: a hold that was forced ends, and one that was not goes on.
func force(x *trial, opts ...holdfast.ForceOption) {
	n := x.name(mutexes, "held")
	hold := x.takes(n)
	x.client()
	x.arm()
	_, err := x.client().ForceRelease(x.ctx, n.text, hold.Token(), opts...)
	if x.said(err) == nil {
		select {
		case <-hold.Done():
		case <-x.ctx.Done():
			x.broken("the holder is not told that its hold was forced")
		}
	} else if holdfast.NotDone(err) && hold.Err() != nil {
		x.broken("the hold ended by a force that was not done: %v", hold.Err())
	}
	_ = hold.Release()
}

// told: what is there is what the operation said. An error that does not say
// that nothing happened leaves both.
func (x *trial) told(err error, is, before, after string) {
	if is == after && !holdfast.NotDone(err) || is == before && err != nil {
		return
	}
	x.broken("it is %q, from %q to %q", is, before, after)
}
