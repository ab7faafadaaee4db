package gateway

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// holdRequest is what a call wants to hold.
type holdRequest struct {
	want      core.Want
	lease     int64 // 0: one of its own
	owner     string
	ttl       time.Duration // of its own lease
	try       bool
	wait      time.Duration // 0: unbounded
	reentrant bool
	value     []byte
	maxHold   time.Duration
	minHold   time.Duration
	delay     time.Duration
}

// held is a hold.
type held struct {
	name     string
	token    uint64
	lease    int64
	left     time.Duration // to its lease
	ends     time.Duration // to its own end; 0: as its lease
	revision uint64
}

func (h *held) message() *pb.Hold {
	return &pb.Hold{Name: h.name, Token: h.token, LeaseId: h.lease, TtlMs: h.left.Milliseconds(), EndsInMs: h.ends.Milliseconds()}
}

// requestOf checks what a request says about its terms.
func (g *Gateway) requestOf(want core.Want, t *pb.Terms) (w holdRequest, err error) {
	w = holdRequest{want: want, lease: t.GetLeaseId(), owner: t.GetOwner(), value: t.GetMetadata()}
	if err := CheckName(want.Name); err != nil {
		return w, err
	}
	if err := checkOwner(w.owner); err != nil {
		return w, err
	}
	if err := w.patience(t.TimeoutMs); err != nil {
		return w, err
	}
	if w.ttl, err = checkTTL(t.GetTtlMs(), g.s.MinTTL()); err != nil {
		return w, err
	}
	if w.maxHold, err = CheckSpan("a max_hold_ms", t.GetMaxHoldMs(), MaxTTL); err != nil {
		return w, err
	}
	if w.minHold, err = CheckSpan("a min_hold_ms", t.GetMinHoldMs(), MaxTTL); err != nil {
		return w, err
	}
	if w.delay, err = CheckSpan("a delay_ms", t.GetDelayMs(), MaxTTL); err != nil {
		return w, err
	}
	return w, w.check(t)
}

// patience sets how long to wait.
func (w *holdRequest) patience(timeout *int64) error {
	if timeout == nil {
		return nil
	}
	if *timeout < 0 || *timeout > maxTimeout {
		return Invalid(w.want.Name, "a timeout of %d ms is out of range: give 0 for one try, up to %d, or none to wait without bound", *timeout, int64(maxTimeout))
	}
	w.try, w.wait = *timeout == 0, time.Duration(*timeout)*time.Millisecond
	return nil
}

func (w *holdRequest) check(t *pb.Terms) error {
	switch {
	case w.lease < 0:
		return Invalid(w.want.Name, "lease %d: numbers of leases are positive", w.lease)
	case w.lease != 0 && t.GetTtlMs() != 0:
		return Invalid(w.want.Name, "a ttl_ms of %d beside lease_id %d: the time to live is that of the lease", t.GetTtlMs(), w.lease)
	case ofHold(w.lease):
		return Invalid(w.want.Name, "lease %d belongs to the hold that it was opened for: grant one to share", w.lease)
	}
	return checkBytes("the metadata", w.value)
}

func (w *holdRequest) command() core.Command {
	c := core.Command{
		Op: core.OpAcquire, Wants: []core.Want{w.want}, Wait: int64(w.wait), Value: w.value,
		MaxHold: int64(w.maxHold), MinHold: int64(w.minHold), Delay: int64(w.delay),
	}
	if w.try {
		c.Flags |= core.Try
	}
	if w.reentrant {
		c.Flags |= core.Reentrant
	}
	if w.lease != 0 {
		c.Owner = w.owner // else its lease has it
	}
	return c
}

// joinable is the name of what calls of one lease share; "": nothing.
func (w *holdRequest) joinable() string {
	if w.lease == 0 || !w.reentrant {
		return ""
	}
	return w.want.Name
}

// print tells requests for a hold with a lease of its own apart. Owner and time to live are
// told to that lease only, but a caller that says another is another, and has to be told so.
func (w *holdRequest) print() string {
	c := w.command()
	c.Owner, c.TTL = w.owner, int64(w.ttl)
	return fingerprint(c)
}

// acquire takes a hold, waiting as long as the request and the call say.
func (g *Gateway) acquire(ctx context.Context, w holdRequest) (held, error) {
	for began := time.Now(); ; began = w.since(began) {
		l, err := g.leaseFor(ctx, &w)
		if err != nil {
			return held{}, err
		}
		h, err := l.acquire(ctx, &w)
		g.release(l)
		if !errors.Is(err, errOutOfStep) && !l.makesRoom(ctx, err) {
			return h, err
		}
	}
}

// since takes off how long the request has waited already, from began until now, which it returns.
func (w *holdRequest) since(began time.Time) time.Time {
	now := time.Now()
	if w.wait > 0 {
		w.wait = max(w.wait-now.Sub(began), time.Millisecond)
	}
	return now
}

// makesRoom waits a moment if err says that the lease has no room, which the cancels of what was left
// behind take: every call has them with it. false: there is nothing to wait for.
func (l *lease) makesRoom(ctx context.Context, err error) bool {
	if !errors.Is(err, errWindow) || l.leftBehind() == 0 {
		return false
	}
	select {
	case <-time.After(retryIn(err)):
		return true
	case <-ctx.Done():
		return false
	}
}

// errOutOfStep: another leader has numbered the commands of this lease, or the number of a new one
// is in use, or another call of it may have got what was asked for; nothing was done, and it has to be
// asked for anew.
var errOutOfStep = errors.New("the lease is used by another")

// leaseFor is the lease that a request hangs on: the one it names, or a new one of
// its own, which no other call uses; without an owner it bears its number.
func (g *Gateway) leaseFor(ctx context.Context, w *holdRequest) (*lease, error) {
	if w.lease != 0 {
		return g.lease(ctx, w.lease)
	}
	from := callerOf(ctx)
	open := core.Command{Op: core.OpOpen, Flags: core.Fleeting, Namespace: from.namespace, TTL: int64(w.ttl)}
	if from.key == "" {
		open.Flags |= core.Fresh // a number that is in use is another's
		number := holdLease + g.newNumber()
		open.Owner = cmp.Or(w.owner, leaseName(number))
		return g.newLease(from.namespace, number, open), nil
	}
	// The same key is the same lease, the end of which is remembered, and the request its
	// first command: the machine does it once.
	open.Flags, open.Meta = 0, w.print()
	number := holdLease + keyNumber(from.key)
	open.Owner = cmp.Or(w.owner, leaseName(number))
	l := g.newLease(from.namespace, number, open)
	l.keyed = true
	return l, nil
}

// acquire runs the request on its lease. Drain waits for it from the start: before its caller
// hears of it, it stands in the queue already.
func (l *lease) acquire(ctx context.Context, w *holdRequest) (held, error) {
	defer l.g.work.begin()()
	grants := l.grantsNow()
	f, err := l.numbered([]core.Command{w.command()})
	if err != nil {
		return held{}, err
	}
	seq := f.Commands[len(f.Commands)-1].Seq
	reply, results, err := l.send(ctx, &f, 1)
	if err == errOutOfStep {
		return held{}, err
	}
	if err != nil {
		l.unanswered(seq, err)
		return held{}, l.usedKey(err)
	}
	if l.keyed {
		if err := l.g.sameRequest(ctx, l.id, l.open.Meta); err != nil {
			return held{}, err
		}
	}
	r := results[0]
	switch {
	case outOfStep(r) && l.keyed:
		return l.before(ctx, w, seq)
	case outOfStep(r):
		return held{}, errOutOfStep
	case r.Code == core.CodeNoSession && l.open == nil:
		return held{}, noLease(l.number)
	case r.Code == core.CodeQueued:
		return l.await(ctx, w, &r, grants)
	case r.Code == core.CodeTimeout: // of a call with a key that has waited before
		return held{}, l.timedOut(ctx, w)
	case r.Code != core.CodeOK:
		if l.keyed && r.Code == core.CodeUnavailable {
			l.g.askAnew(ctx, l.id, *l.open, seq)
		}
		l.gotNothing(seq)
		return held{}, refusal(&r, reply.Now, []core.Want{w.want})
	}
	l.settle(seq)
	return held{
		name: w.want.Name, token: r.Token, lease: l.number, revision: r.Revision,
		left: convert.Left(reply.Now, reply.Deadline), ends: convert.Left(reply.Now, r.Deadline),
	}, nil
}

// before finds the hold that a request with a key got when it was made first, once
// later commands have used its lease; or asks for it anew if number seq was turned down.
func (l *lease) before(ctx context.Context, w *holdRequest, seq uint64) (h held, err error) {
	next, err := l.g.nextOfKey(ctx, l.id)
	if err != nil {
		return h, err
	}
	if next > seq {
		l.settle(seq)
		l.next = next
		return l.acquire(ctx, w)
	}
	found := false
	err = l.g.look(ctx, func(m *core.Machine, now int64) {
		s, _ := m.SessionPage(l.id, core.Cursor{}, 0)
		for i := range s.Claims {
			c := &s.Claims[i]
			found = true
			h = held{name: c.Name, token: c.Token, lease: l.number, revision: c.Modified, left: convert.Left(now, s.Deadline), ends: convert.Left(now, c.Deadline)}
		}
	})
	if err == nil && !found {
		err = errUsedKey()
	}
	return h, err
}

// errDraining is told to the waiters when the node is about to stop.
var errDraining = errors.New("the node is about to stop: ask another, or try again")

// await waits for a queued claim. A lease that was opened for it is renewed
// meanwhile. If another call of the lease, which had so many grants before, is granted what this one
// may join, it is asked for anew: it would wait for its own lease.
func (l *lease) await(ctx context.Context, w *holdRequest, r *core.Result, grants uint64) (held, error) {
	seq := r.Seq
	x, err := l.g.waits.add(ctx, l, seq, r.Revision, w.joinable())
	if err != nil {
		l.abandon(seq)
		return held{}, err
	}
	defer l.g.waits.remove(x)
	if l.grantsNow() != grants && l.has(ctx, w.joinable(), seq) {
		return held{}, l.takeBack(ctx, seq, errOutOfStep)
	}
	resume, err := l.g.gate.rest(ctx)
	if err != nil {
		return held{}, l.takeBack(ctx, seq, err)
	}
	defer resume()
	l.g.meter.waiting.Inc()
	defer l.g.meter.waiting.Dec()
	renew := time.NewTicker(max(l.ttl/3, time.Millisecond))
	defer renew.Stop()
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	var renewed chan struct{} // nil: none is under way
	for {
		select {
		case o := <-x.done:
			return l.granted(ctx, w, seq, o)
		case <-x.joins:
			if l.has(ctx, w.joinable(), seq) {
				return held{}, l.takeBack(ctx, seq, errOutOfStep)
			}
		case <-ctx.Done():
			l.abandon(seq)
			return held{}, &driver.Error{Kind: ctx.Err(), Err: context.Cause(ctx)}
		case <-l.g.draining:
			return held{}, l.takeBack(ctx, seq, &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone, RetryAfter: time.Second, Err: errDraining})
		case <-renew.C:
			if w.lease == 0 && renewed == nil {
				renewed = l.renewBeside(within)
			}
		case <-renewed:
			renewed = nil
		}
	}
}

// has reports that the lease has a mutex of that name, by another claim than seq.
func (l *lease) has(ctx context.Context, name string, seq uint64) (has bool) {
	if name == "" {
		return false
	}
	_ = l.g.look(ctx, func(m *core.Machine, _ int64) {
		r, _ := m.InspectPage(l.ns, name, core.Cursor{}, 1)
		has = len(r.Holders) > 0 && r.Holders[0].Session == l.id && r.Holders[0].Seq != seq
	})
	return has
}

// renewBeside renews a lease while its caller goes on; what it returns is closed when that is over.
func (l *lease) renewBeside(ctx context.Context) chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = l.g.renew(ctx, l.id, 0) // the stream tells if that was in vain
	}()
	return over
}

// granted answers what became of a claim. A grant counts as a keepalive of the
// lease that was opened for it.
func (l *lease) granted(ctx context.Context, w *holdRequest, seq uint64, o outcome) (held, error) {
	switch {
	case o.err != nil:
		l.leave(seq)
		return held{}, o.err
	case o.row.Code == core.CodeNoSession || o.row.Code == core.CodeRevoked:
		return held{}, driver.Errorf("", w.want.Name, driver.ErrLost, "lease %d ended while the call waited: it expired, or was revoked; grant a new one", l.number)
	case o.row.Code == core.CodeTimeout:
		l.gotNothing(seq)
		return held{}, l.timedOut(ctx, w)
	case o.row.Code == core.CodeInvalid: // no other try can do better
		l.abandon(seq)
		return held{}, convert.Refusal(o.row.Code, "")
	case o.row.State != core.ClaimGranted:
		l.gotNothing(seq)
		e := convert.Refusal(o.row.Code, "")
		e.Holders = l.g.holders(ctx, l.ns, w.want.Name)
		e.RetryAfter = retryAfter(e.Holders)
		return held{}, e
	}
	h := held{name: w.want.Name, token: o.row.Token, lease: l.number, revision: o.row.Token}
	var err error
	if w.lease == 0 {
		err = l.keep(ctx, &h, o.row.Deadline)
	} else {
		err = l.leftOf(ctx, &h, o.row.Deadline)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		l.abandon(seq)
		return held{}, err
	}
	l.settle(seq)
	l.g.waits.granted(l, w.joinable())
	return h, nil
}

// errTimedOut: the time that a request gave has passed, by the machine's clock.
var errTimedOut = errors.New("it was not free in the time given")

// timedOut is the error of a claim after its time has passed, with those that have it now.
func (l *lease) timedOut(ctx context.Context, w *holdRequest) error {
	e := convert.Refusal(core.CodeTimeout, "")
	e.Err, e.Holders = errTimedOut, l.g.holders(ctx, l.ns, w.want.Name)
	e.RetryAfter = retryAfter(e.Holders)
	return e
}

// keep renews the lease of a hold.
func (l *lease) keep(ctx context.Context, h *held, deadline int64) error {
	r, err := l.g.renew(ctx, l.id, 0)
	if err == nil && r.Deadline == 0 {
		err = endedMeanwhile()
	}
	h.left, h.ends = convert.Left(r.Now, r.Deadline), convert.Left(r.Now, deadline)
	return err
}

// leftOf tells how much time a hold has.
func (l *lease) leftOf(ctx context.Context, h *held, deadline int64) error {
	lives := false
	err := l.g.look(ctx, func(m *core.Machine, now int64) {
		var info core.SessionInfo
		info, lives = m.Session(l.id)
		h.left, h.ends = convert.Left(now, info.Deadline), convert.Left(now, deadline)
	})
	if err == nil && !lives {
		err = endedMeanwhile()
	}
	return err
}

func endedMeanwhile() error {
	return &driver.Error{Kind: driver.ErrLost, Err: errors.New("its lease has ended meanwhile")}
}

// holders are those of a name now, as far as that can be told.
func (g *Gateway) holders(ctx context.Context, ns, name string) (list []driver.Claim) {
	_ = g.look(ctx, func(m *core.Machine, now int64) {
		if r, ok := m.InspectPage(ns, name, core.Cursor{}, 16); ok {
			list = convert.Claims(now, r.Holders)
		}
	})
	return list
}

// owner finds the lease with the hold on a name that has a token.
func (g *Gateway) owner(ctx context.Context, name string, token uint64, kinds ...core.Kind) (*lease, core.ClaimInfo, error) {
	if err := CheckName(name); err != nil {
		return nil, core.ClaimInfo{}, err
	}
	if token == 0 {
		return nil, core.ClaimInfo{}, Invalid(name, "the token is missing: give the one that the hold was granted with")
	}
	ns := callerOf(ctx).namespace
	var claim core.ClaimInfo
	err := g.look(ctx, func(m *core.Machine, _ int64) {
		if c, ok := m.Holder(ns, name, token); ok && slices.Contains(kinds, c.Kind) {
			claim = c
		}
	})
	if err != nil {
		return nil, claim, err
	}
	number, ours := leaseOf(ns, claim.Session)
	switch {
	case claim.Token == 0 || claim.Session == core.SessionID{}:
		return nil, claim, notHeld(name, token)
	case !ours:
		return nil, claim, driver.Errorf("", name, fs.ErrPermission, "its holder keeps its session itself: only that, or force, can release it")
	}
	l, err := g.lease(ctx, number)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = notHeld(name, token)
	case err == nil:
		l.canceled(claim.Seq)
	}
	return l, claim, err
}

func notHeld(name string, token uint64) error {
	return driver.Errorf("", name, driver.ErrLost, "it is not held with token %d (any more): it may be another's by now", token)
}

// alter runs a command about a hold, on its lease.
func (g *Gateway) alter(ctx context.Context, name string, token uint64, command func(core.ClaimInfo) core.Command, kinds ...core.Kind) (core.Result, error) {
	for {
		l, claim, err := g.owner(ctx, name, token, kinds...)
		if err != nil {
			return core.Result{}, err
		}
		c := command(claim)
		commands := []core.Command{c}
		if c.Op == core.OpRelease && ofHold(l.number) {
			commands = append(commands, core.Command{Op: core.OpEnd, Namespace: l.ns})
		}
		reply, results, err := l.run(ctx, commands...)
		g.release(l)
		switch {
		case l.makesRoom(ctx, err):
			continue
		case err != nil:
			return core.Result{}, err
		}
		if r := results[0]; !outOfStep(r) {
			return r, refusal(&r, reply.Now, nil)
		}
		if len(results) > 1 { // the release was overtaken, and the end of the lease has given the hold back
			return results[1], nil
		}
	}
}

// GiveBack releases a hold by its token.
func (g *Gateway) GiveBack(ctx context.Context, name string, token uint64, kinds ...core.Kind) (*pb.Header, error) {
	r, err := g.alter(ctx, name, token, func(core.ClaimInfo) core.Command {
		return core.Command{Op: core.OpRelease, Name: name, Token: token}
	}, kinds...)
	if err != nil {
		return nil, err
	}
	return g.Header(ctx, r.Revision), nil
}

// Renew keeps the lease of a hold by its token.
func (g *Gateway) Renew(ctx context.Context, name string, token uint64, ttl time.Duration, kinds ...core.Kind) (time.Duration, error) {
	l, _, err := g.owner(ctx, name, token, kinds...)
	if err != nil {
		return 0, err
	}
	g.release(l)
	r, err := g.renew(ctx, l.id, ttl)
	switch {
	case err == nil && r.Deadline == 0:
		err = driver.Errorf("", name, driver.ErrLost, "its lease has ended")
	case err == nil:
		g.used(l.ns, l.number)
	}
	return convert.Left(r.Now, r.Deadline), err
}
