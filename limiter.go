package holdfast

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// Limiter lets something happen at most at a rate, over all programs that ask it,
// for each key by itself: a user, an address, or "" for all together. Every
// decision is made by the backend and its clock, so that never more is allowed
// than the algorithm of the rate says (docs/limits.md); a backend without a clock,
// as nats, goes by those of the machines, and allows what refills in their difference
// on top. A failed call may have taken what it asked for: [NotDone] tells when it
// surely did not. Safe for concurrent use.
type Limiter struct {
	s    *Space
	name string
	rate atomic.Pointer[limit.Rate]
	err  error
}

// Limiter names a limiter; it does no I/O. The first call that reaches the backend
// makes it, with this rate; from then on a rate that differs is ErrConflict. A look makes
// nothing ([Limiter.Peek], [Limiter.Available]), nor does what is settled or given back. The
// zero Rate is that of the limiter, which has to exist.
func (s *Space) Limiter(name string, rate limit.Rate) *Limiter {
	l := &Limiter{s: s, name: s.prefix + name}
	l.rate.Store(&rate)
	l.err = firstError(checkName(l.name, s.r.maxName()), s.cfg.err)
	if rate != (limit.Rate{}) {
		l.err = firstError(l.err, checkRate(rate))
	}
	return l
}

func checkRate(rate limit.Rate) error {
	if err := rate.Check(); err != nil {
		return invalid("%w", err)
	}
	return nil
}

// Allow asks whether key may do one more, and takes it if so. A refusal is a
// Decision, not an error.
func (l *Limiter) Allow(ctx context.Context, key string) (limit.Decision, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN is [Limiter.Allow] for a cost of n, all or nothing.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (limit.Decision, error) {
	reply, err := l.ask(ctx, "allow", &driver.LimitRequest{Key: key, Cost: n})
	return reply.Decision, err
}

// Peek decides as [Limiter.AllowN] would, and takes nothing. Of a limiter that does not exist
// it tells what a new one would. A key that was never used does not fill: at a rate with an Initial
// below its Burst, RetryAfter counts from the first Allow, also one that is refused, and until
// then every look tells the same.
func (l *Limiter) Peek(ctx context.Context, key string, n int64) (limit.Decision, error) {
	reply, err := l.ask(ctx, "peek", &driver.LimitRequest{Key: key, Op: driver.LimitPeek, Cost: n})
	return reply.Decision, err
}

// Available is what key could take at once.
func (l *Limiter) Available(ctx context.Context, key string) (int64, error) {
	d, err := l.Peek(ctx, key, 0)
	return d.Remaining, err
}

// Reset makes key as if it had never been used. A [Limiter.Wait] for it asks again.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	_, err := l.ask(ctx, "reset", &driver.LimitRequest{Key: key, Op: driver.LimitReset})
	if err == nil {
		l.changed(key)
	}
	return err
}

// SetRate sets the rate for everybody, and makes a limiter that does not exist.
// Every key begins anew, as if it had never been used. This Limiter goes on with
// the new rate; others that were made with another one get ErrConflict.
func (l *Limiter) SetRate(ctx context.Context, rate limit.Rate) error {
	if err := checkRate(rate); err != nil {
		return wrap("set rate", l.name, err)
	}
	_, err := l.send(ctx, "set rate", &driver.LimitRequest{Op: driver.LimitSetRate, Rate: rate})
	if err == nil {
		l.rate.Store(&rate)
		l.changedAll()
	}
	return err
}

// Delete forgets the limiter, its rate and all its keys. What was taken from it before is settled
// and given back without effect.
func (l *Limiter) Delete(ctx context.Context) error {
	err := l.s.remove(ctx, driver.Limiter, l.name, driver.FeatureLimit, l.err)
	if err == nil {
		l.changedAll()
	}
	return err
}

// ask sends a request about a key with the limiter's rate.
func (l *Limiter) ask(ctx context.Context, op string, r *driver.LimitRequest) (driver.LimitReply, error) {
	r.Rate = *l.rate.Load()
	return l.send(ctx, op, r)
}

func (l *Limiter) send(ctx context.Context, op string, r *driver.LimitRequest) (driver.LimitReply, error) {
	err := firstError(l.err, checkLimitKey(r.Key, l.s.r.maxName()), checkCost(r.Cost), l.s.r.ready(ctx, driver.FeatureLimit))
	if err != nil {
		return driver.LimitReply{}, wrap(op, l.name, err)
	}
	r.ID, r.Name = newID(), l.name
	reply, err := l.s.r.d.Limit(ctx, r)
	return reply, l.s.r.wrap(ctx, op, l.name, driver.FeatureLimit, err)
}

// correct changes what was taken before. It says no rate, which would make a limiter again that was deleted; of
// that there is nothing to correct.
func (l *Limiter) correct(ctx context.Context, op string, r *driver.LimitRequest) error {
	_, err := l.send(ctx, op, r)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func checkLimitKey(key string, longest int) error {
	if len(key) > longest {
		return invalid("the key has %d bytes; at most %d are allowed", len(key), longest)
	}
	return checkText("key", key)
}

func checkCost(n int64) error {
	if n < 0 {
		return invalid("a cost of %d is negative; to give something back, use Reserve and Settle", n)
	}
	return nil
}

// Reservation is what [Limiter.Reserve] took, until it is settled.
type Reservation struct {
	// Decision tells whether anything was taken.
	Decision limit.Decision

	l       *Limiter
	key     string
	taken   limit.Reservation
	settled atomic.Bool
}

// Reserve is [Limiter.AllowN] for a cost that is only estimated. Settle corrects it
// once it is known, Cancel gives it back; without either it stays.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (*Reservation, error) {
	reply, err := l.ask(ctx, "reserve", &driver.LimitRequest{Key: key, Cost: n})
	if err != nil {
		return nil, err
	}
	return &Reservation{Decision: reply.Decision, l: l, key: key, taken: reply.Reservation}, nil
}

// Settle replaces what was reserved by the actual cost. More is taken in any case:
// the key may be in debt then, which it pays by waiting. Less is given back, as far
// as time has not done so. Only the first call of Settle or Cancel counts, also if it fails: a
// second would give back twice. One that is [NotDone] can be repeated. Of a refusal, and of a
// limiter that was deleted, it does nothing.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if !r.Decision.Allowed || !r.settled.CompareAndSwap(false, true) {
		return nil
	}
	err := r.l.correct(ctx, "settle", &driver.LimitRequest{Key: r.key, Op: driver.LimitSettle, Cost: actual, Reservation: r.taken})
	if NotDone(err) {
		r.settled.Store(false)
	}
	return err
}

// Cancel gives back what was reserved, as far as time has not done so.
func (r *Reservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Wait waits until key may do one more, and takes it.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN is [Limiter.Wait] for a cost of n. Callers are served in the order in which
// they ask: of GCRA and token bucket over all programs, of the others within a
// Space. For each key those of a Space ask the backend in turn: one, and when it is answered the
// next, or all together for which the answer tells that there is room, or which a bucket serves within
// two round trips; those are served in any order. The order over all programs is that in
// which their questions come to the backend. If another program takes some of the room meanwhile,
// a later caller may be served before an earlier one.
//
// If the wait would be longer than ctx allows, WaitN fails at once with
// context.DeadlineExceeded, and [RetryAfter] says how long it would be. What the callers
// before it in the Space will take is not part of that estimate: behind them a caller may
// wait until ctx ends.
//
// A caller that waits asks again if the limiter was changed by Reset, SetRate or Delete, also for what it had been
// given a place for: at once if that was done by this Space, and else within 2 seconds if it could be served
// sooner than it was told, or the rate is another: one that differs from the Limiter's is ErrConflict. Those of a
// Space ask again in their order. For that, one caller of each key and Space looks every 2 seconds, as
// [Limiter.Peek] does.
//
// A caller that leaves gives back what it took, also if it leaves before it is answered: its
// question goes on in the background, for 5 seconds at most. If others wait behind it, that is done
// when those of the Space have left too; else its share passes unused. What it took is
// given back in the background, one caller after the other, and counts until then; callers of the
// Space that would ask meanwhile wait for that, for a second or two at most. It
// stays counted if the backend is away or does not answer meanwhile, or the Space is closed.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
	p, err := l.inTurn(ctx, key, n)
	if err != nil {
		return err
	}
	defer func() { p.leave() }()
	for {
		if err := l.await(ctx, key, p); err != nil {
			return err
		}
		next, again, err := l.waitOnce(ctx, key, n, p)
		if p = next; !again {
			return err
		}
	}
}

// inTurn is the caller's place among those of the Space. It is taken before anything is asked: answers do not come
// in the order of the calls, nor do questions by several connections.
func (l *Limiter) inTurn(ctx context.Context, key string, n int64) (*place, error) {
	ends, _ := ctx.Deadline()
	p := l.s.r.turns.join(l.turn(key), n, ends)
	rate, err := l.known(ctx, "wait", key)
	if err == nil {
		err = l.worth(ctx, key, n, rate, p)
	}
	if err != nil {
		p.leave()
		return nil, err
	}
	return p, nil
}

// worth refuses a cost that is not worth its place.
func (l *Limiter) worth(ctx context.Context, key string, n int64, rate limit.Rate, p *place) error {
	if err := firstError(l.err, checkCost(n)); err != nil {
		return wrap("wait", l.name, err)
	}
	if n > rate.Limit() {
		return l.never(n, rate.Limit())
	}
	if p.behindRefused() {
		return l.hopeless(ctx, key, n)
	}
	return nil
}

// await returns when it is the caller's turn, or not worth to wait for.
func (l *Limiter) await(ctx context.Context, key string, p *place) error {
	if p == nil {
		return nil
	}
	for {
		select {
		case <-p.turn:
			return l.inTime(p)
		default:
		}
		select {
		case <-p.turn:
		case <-p.look:
			if err := l.hopeless(ctx, key, p.cost); err != nil {
				return err
			}
		case <-ctx.Done():
			return l.ended(ctx, driver.NotDone)
		}
	}
}

// inTime refuses a caller for which the wait would be too long by what another was answered.
func (l *Limiter) inTime(p *place) error {
	if p.tooLong > 0 {
		return l.tooLong(p.tooLong)
	}
	return nil
}

// hopeless is why a cost is not worth a place in the queue: even a caller that were the first could not take it
// before ctx ends.
func (l *Limiter) hopeless(ctx context.Context, key string, n int64) error {
	at, ends := ctx.Deadline()
	if !ends {
		return nil
	}
	d, err := l.Peek(ctx, key, n)
	if err == nil && d.RetryAfter > max(time.Until(at), 0) {
		return l.tooLong(d.RetryAfter)
	}
	return nil // what is wrong with the backend is told in its turn
}

// turn names the queue of a key.
func (l *Limiter) turn(key string) string { return l.name + "\x00" + key }

func (l *Limiter) never(n, most int64) error {
	return wrap("wait", l.name, invalid("a cost of %d can never be taken: the most is %d", n, most))
}

func (l *Limiter) tooLong(wait time.Duration) error {
	return wrap("wait", l.name, &Error{Kind: context.DeadlineExceeded, Outcome: driver.NotDone, RetryAfter: wait})
}

// known is the limiter's rate, by the backend if it was not said.
func (l *Limiter) known(ctx context.Context, op, key string) (limit.Rate, error) {
	if rate := *l.rate.Load(); rate.Count != 0 {
		return rate, nil
	}
	reply, err := l.ask(ctx, op, &driver.LimitRequest{Key: key, Op: driver.LimitPeek})
	return reply.Rate, err
}

// longestWait bounds a wait without a deadline.
const longestWait = 10 * 366 * 24 * time.Hour

// waitOnce asks once and waits as long as it is told; again: it has to ask again, in its turn at next.
func (l *Limiter) waitOnce(ctx context.Context, key string, n int64, p *place) (next *place, again bool, err error) {
	within := longestWait
	if at, ok := ctx.Deadline(); ok {
		within = min(within, max(time.Until(at), 0))
	}
	p.asks()
	began := driver.Now()
	reply, p, err := l.askWait(ctx, &driver.LimitRequest{Key: key, Cost: n, Wait: within}, p)
	d := reply.Decision
	p.answered(d, err)
	p.makeRoom(l.fillsIn(2*driver.Now().Sub(began), &reply))
	switch {
	case err != nil || d.Allowed && d.RetryAfter == 0:
		return p, false, err
	case d.RetryAfter == limit.Never:
		return p, false, l.never(n, d.Limit)
	case d.RetryAfter > within:
		return p, false, l.tooLong(d.RetryAfter)
	case !d.Allowed && !p.again():
		return p, true, nil
	case !d.Allowed:
		next, _, err = l.sleep(ctx, key, n, &reply, p)
		return next, err == nil, err
	}
	p.leave() // the backend has its place
	over := l.waits(key, &reply)
	next, again, err = l.sleep(ctx, key, n, &reply, nil)
	if err != nil && ctx.Err() != nil && l.s.r.life.Err() == nil {
		l.abandon(ctx, key, &reply)
	}
	over(err == nil && !again)
	return next, again, err
}

// fillsIn is what a bucket fills within a while, if the place that it has just given comes within that, else 0: so many
// others find a place before they could ask one by one, and a Space that is far away would not use the rate.
func (l *Limiter) fillsIn(while time.Duration, reply *driver.LimitReply) int64 {
	d, r := reply.Decision, *l.rate.Load()
	if r.Count == 0 {
		r = reply.Rate
	}
	if !d.Allowed || d.RetryAfter >= while || r.Algorithm != limit.GCRA && r.Algorithm != limit.TokenBucket || r.Per <= 0 {
		return 0
	}
	return int64(min(float64(r.Count)*float64(while)/float64(r.Per), float64(limit.MaxCount)))
}

// taken is the outcome of a wait that ends after something was taken for it, or may have been: how
// much of that is given back, nobody knows.
func taken(maybe bool) driver.Outcome {
	if maybe {
		return driver.Unknown
	}
	return driver.NotDone
}

// ended is the error of a wait after its context has ended.
func (l *Limiter) ended(ctx context.Context, o driver.Outcome) error {
	return wrap("wait", l.name, &Error{Kind: ctx.Err(), Outcome: o, Err: causeOf(ctx, ctx.Err())})
}

// askWait is ask for a wait, as long as ctx lasts. If that ends before the answer is here, it returns at once: the
// question goes on without the caller, and keeps the caller's place; own is nil then.
func (l *Limiter) askWait(ctx context.Context, r *driver.LimitRequest, p *place) (reply driver.LimitReply, own *place, err error) {
	if err := l.s.r.ready(ctx, driver.FeatureLimit); err != nil {
		return reply, p, wrap("wait", l.name, err)
	}
	answers, left := make(chan waitAnswer), make(chan struct{})
	defer close(left)
	started := l.s.r.spawn(func() {
		a := l.askOn(ctx, r)
		select {
		case answers <- a:
		case <-left:
			l.unheard(ctx, r.Key, a, p)
		}
	})
	if !started {
		return reply, p, wrap("wait", l.name, errClosed)
	}
	select {
	case a := <-answers:
		return a.reply, p, a.err
	case <-ctx.Done():
		time.AfterFunc(longestTurn, p.leave)
		return reply, nil, l.ended(ctx, driver.Unknown)
	}
}

// waitAnswer is the backend's to the question of a wait.
type waitAnswer struct {
	reply driver.LimitReply
	err   error
}

// askOn asks for a wait, and goes on for a while after ctx has ended: the answer tells what was taken.
func (l *Limiter) askOn(ctx context.Context, r *driver.LimitRequest) (a waitAnswer) {
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(patience, cancel) })()
	defer context.AfterFunc(l.s.r.life, cancel)()
	a.reply, a.err = l.ask(asking, "wait", r)
	if a.err != nil && asking.Err() != nil && ctx.Err() == nil {
		a.err = wrap("wait", l.name, &Error{Kind: ErrClosed, Outcome: driver.Unknown})
	}
	return a
}

// unheard is for an answer to a caller that has left: what it took is given back, and before others ask, since nothing is
// given back of what another has a place behind.
func (l *Limiter) unheard(ctx context.Context, key string, a waitAnswer, p *place) {
	defer p.leave()
	p.answered(a.reply.Decision, a.err)
	if a.err == nil && a.reply.Decision.Allowed {
		l.abandon(ctx, key, &a.reply)
	}
}
