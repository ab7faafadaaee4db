package drivertest_test

import (
	"context"
	"io/fs"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/limits"
	"github.com/holdfast-io/holdfast/limit"
)

// toyLimiter is a limiter with its keys.
type toyLimiter struct {
	rate limit.Rate
	keys map[string]limit.State
	n    int
	// asked is how often it was asked for something.
	asked int
	// epoch counts the rates that it had.
	epoch uint64
}

func (t *toy) Limit(ctx context.Context, r *driver.LimitRequest) (reply driver.LimitReply, err error) {
	if err := t.reach(ctx); err != nil {
		return reply, err
	}
	t.e.do(func() { reply, err = t.e.limited(r) })
	return reply, err
}

// limited decides, or breaks a promise.
func (e *engine) limited(r *driver.LimitRequest) (driver.LimitReply, error) {
	l, err := e.limiter(r)
	if err != nil {
		return driver.LimitReply{}, err
	}
	if l.asked++; e.has("limiter is away") || l.asked%5 == 0 && e.has("limiter is away at times") {
		return driver.LimitReply{}, &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone}
	}
	key := r.Key
	if e.has("limiter keys mix") {
		key = ""
	}
	rate, now := e.bend(l.rate), time.Now().UnixNano()
	if e.has("limiter never refills") {
		now = 0
	}
	s, reply, _ := limits.Decide(rate, l.epoch, l.keys[key], now, e.twist(l, r))
	if r.Op == driver.LimitReset && e.has("what was reset is given back") {
		s = limit.State{}
	}
	if e.has("limiter refills too fast") {
		reply.Now, reply.Rate = now, l.rate
	}
	if l.n++; e.forgets(l, r) {
		return reply, nil
	}
	was := l.keys[key]
	l.keys[key] = s
	if r.Op == driver.LimitReset && was.Known || r.Op == driver.LimitSetRate || e.has("decisions are told") {
		e.tellLimit(r.Name)
	}
	return reply, nil
}

// limiter finds or makes the limiter of r.
func (e *engine) limiter(r *driver.LimitRequest) (*toyLimiter, error) {
	l, exists := e.limiters[r.Name]
	if !exists {
		e.epochs++
		l = &toyLimiter{keys: map[string]limit.State{}, epoch: e.epochs}
	}
	rate, err := limits.Agree(l.rate, exists, r)
	switch {
	case err != nil && exists && e.has("rate differs quietly"):
		rate, err = r.Rate, nil
	case err != nil && !exists && e.has("limiter makes itself"):
		rate, err = limit.Rate{Count: 5, Per: time.Hour}, nil
	case err != nil:
		return nil, err
	}
	if r.Op == driver.LimitSetRate && !e.has("set rate keeps keys") {
		clear(l.keys)
	}
	if r.Op == driver.LimitSetRate && !e.has("an old rate gives back") {
		e.epochs++
		l.epoch = e.epochs
	}
	l.rate = rate
	if r.Op == driver.LimitPeek && !e.has("peek makes") {
		return l, nil
	}
	if e.limiters == nil {
		e.limiters = map[string]*toyLimiter{}
	}
	e.limiters[r.Name] = l
	return l, nil
}

// bend is the rate with a fault.
func (e *engine) bend(rate limit.Rate) limit.Rate {
	switch {
	case e.has("limiter allows one more"):
		rate.Burst = rate.Limit() + 1
	case e.has("limiter refills too fast"):
		rate.Burst, rate.Count = rate.Limit(), 2*rate.Count
	case e.has("limiter gives a tenth"):
		rate.Burst, rate.Count = rate.Limit()/10, rate.Count/10
	case e.has("one algorithm"):
		rate = limit.Rate{Count: rate.Count, Per: max(rate.Per, time.Hour)}
	}
	return rate
}

// twist is the request with a fault.
func (e *engine) twist(l *toyLimiter, r *driver.LimitRequest) *driver.LimitRequest {
	q := *r
	switch {
	case e.has("limiter takes what is left") && q.Op == driver.LimitTake:
		left := limit.Peek(l.rate, l.keys[q.Key], time.Now().UnixNano(), 0).Remaining
		q.Cost = min(q.Cost, max(left, 1))
	case e.has("peek takes") && q.Op == driver.LimitPeek:
		q.Op = driver.LimitTake
	case e.has("blocks are ordinary"):
		q.Ahead = 0
	case e.has("limiter never waits"):
		q.Cost = 0
	}
	return &q
}

// forgets reports that the fault is not to keep what r did.
func (e *engine) forgets(l *toyLimiter, r *driver.LimitRequest) bool {
	window := l.rate.Algorithm >= limit.FixedWindow && e.has("windows lose takes")
	return (window || e.has("limiter loses takes")) && l.n%7 == 0 || e.has("settle forgets") && r.Op == driver.LimitSettle ||
		e.has("reset forgets") && r.Op == driver.LimitReset
}

func (e *engine) deleteLimiter(name string) error {
	if _, ok := e.limiters[name]; !ok {
		return refusal(fs.ErrNotExist, "there is no such limiter")
	}
	delete(e.limiters, name)
	e.tellLimit(name)
	return nil
}

func (e *engine) tellLimit(name string) {
	e.rev++
	e.publish(driver.Event{Revision: e.rev, Kind: "limit", Verb: "changed", Name: name})
}
