package holdfast

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// Election is a name that one candidate leads, with a value that it proclaims,
// such as its address. Safe for concurrent use.
type Election struct{ l lockable }

// Election names an election; it does no I/O.
func (s *Space) Election(name string, opts ...HoldOption) *Election {
	return &Election{s.lockable(name, opts)}
}

// Leadership is the Hold of a leader. Resigning is [Hold.Release].
type Leadership struct{ *Hold }

// Leader is the candidate that leads.
type Leader struct {
	Owner    string
	Value    []byte
	Token    Token
	Revision Revision // of its last change
}

var aLeader = driver.Want{Kind: driver.Election}

func (e *Election) campaign(ctx context.Context, value []byte, try bool) (*Leadership, error) {
	if err := checkValue(value); err != nil {
		return nil, wrap("campaign", e.l.name, err)
	}
	w := &request{op: "campaign"}
	w.Try, w.Value = try, value
	h, err := e.l.take(ctx, aLeader, driver.FeatureElection, w)
	if err != nil {
		return nil, err
	}
	return &Leadership{h}, nil
}

// checkValue bounds what a leader tells: everybody is told it again with each change.
func checkValue(value []byte) error {
	if len(value) > maxMeta {
		return invalid("the value has %d bytes; at most %d are allowed: tell where the rest is", len(value), maxMeta)
	}
	return nil
}

// Campaign waits until elected; value, of up to 4 KiB, is proclaimed with the election.
func (e *Election) Campaign(ctx context.Context, value []byte) (*Leadership, error) {
	return e.campaign(ctx, value, false)
}

// TryCampaign leads if nobody does; if somebody does, ErrHeld.
func (e *Election) TryCampaign(ctx context.Context, value []byte) (*Leadership, error) {
	return e.campaign(ctx, value, true)
}

// Lead campaigns and runs f while leading; after each loss of leadership it
// campaigns again, and so it does when the backend was away while it waited, after a
// pause of up to a second, which is told to Hooks.Fault. It returns when f returns
// without a loss of the leadership, with f's result, when ctx ends, when the Space or
// what is behind it is closed (ErrClosed), when the session that it is [Under] has ended,
// or when the backend refuses the campaign, as with ErrConflict. f's context ends when
// leadership does.
func (e *Election) Lead(ctx context.Context, value []byte, f func(context.Context, *Leadership) error) error {
	for {
		l, err := e.stand(ctx, value)
		if err != nil {
			return err
		}
		var own error
		err = during(ctx, l.Hold, func(ctx context.Context) error {
			own = f(ctx, l)
			return own
		})
		// The loss of another hold that f tells of is f's result.
		lost := errors.Is(l.Err(), ErrLost) || errors.Is(err, ErrLost) && !errors.Is(own, ErrLost)
		if !lost || e.ends(ctx) {
			return err
		}
	}
}

// stand campaigns until elected, also through failures of the backend: a candidate that
// left the election then would not be there when it is back. A claim whose fate is not
// known has ended with its session.
func (e *Election) stand(ctx context.Context, value []byte) (l *Leadership, err error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		l, err = e.Campaign(ctx, value)
		if !e.away(err) || e.ends(ctx) {
			return l, err
		}
		e.l.s.r.fault("campaign", e.l.name, err)
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
		}
	}
}

// away: the campaign failed with the backend, which may be back, or its wait was lost with its session.
func (e *Election) away(err error) bool {
	lost := errors.Is(err, ErrLost) && !errors.Is(err, ErrClosed)
	return again(err) || lost && e.l.cfg.under == nil
}

// ends: the caller or the Space wants no further campaign.
func (e *Election) ends(ctx context.Context) bool {
	return ctx.Err() != nil || e.l.s.r.phase.Load() != open
}

// TryLead runs f once while leading, if nobody else leads; if somebody does,
// ErrHeld.
func (e *Election) TryLead(ctx context.Context, value []byte, f func(context.Context, *Leadership) error) error {
	l, err := e.TryCampaign(ctx, value)
	if err != nil {
		return err
	}
	return during(ctx, l.Hold, func(ctx context.Context) error { return f(ctx, l) })
}

// Leader tells the present leader; ErrNotFound: there is none. A name that is held as
// something else is ErrConflict, as it is for Campaign.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	err := firstError(e.l.err, e.l.s.r.ready(ctx, driver.FeatureElection))
	if err != nil {
		return Leader{}, wrap("leader", e.l.name, err)
	}
	res, err := e.l.s.r.d.Inspect(ctx, &driver.InspectRequest{Name: e.l.name, Max: 1})
	if err != nil {
		return Leader{}, e.l.s.r.wrap(ctx, "leader", e.l.name, driver.FeatureElection, err)
	}
	if len(res.Resources) == 0 || len(res.Resources[0].Holders) == 0 {
		return Leader{}, driver.Errorf("leader", e.l.name, ErrNotFound, "nobody leads; Observe waits for the next leader")
	}
	if kind := res.Resources[0].Kind; kind != driver.Election {
		return Leader{}, driver.Errorf("leader", e.l.name, ErrConflict, "it is held as a %s", kind)
	}
	c := res.Resources[0].Holders[0]
	return Leader{Owner: c.Owner, Value: c.Value, Token: c.Token, Revision: c.Modified}, nil
}

// Observe yields the leader and then each new one, or each new value, until ctx
// ends, which is no error. Quick changes may be passed over; the last is not. An error, as
// of a backend that is closed, is the last pair.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		var last Leader
		for _, err := range e.events(ctx) {
			now, err := e.after(ctx, err)
			if ctx.Err() != nil {
				return
			}
			if err == nil && (now.Token == 0 || now.equal(last)) {
				continue
			}
			if last = now; !yield(now, err) || err != nil {
				return
			}
		}
	}
}

// after asks for the leader after an event; none is the zero Leader.
func (e *Election) after(ctx context.Context, err error) (Leader, error) {
	if err != nil {
		return Leader{}, err
	}
	now, err := e.Leader(ctx)
	if errors.Is(err, ErrNotFound) {
		return Leader{}, nil
	}
	return now, err
}

func (l Leader) equal(o Leader) bool {
	return l.Token == o.Token && bytes.Equal(l.Value, o.Value)
}

// events are all events of the election's name, the first being "ready".
func (e *Election) events(ctx context.Context) iter.Seq2[Event, error] {
	return e.l.s.r.watch(ctx, "observe", e.l.err, &driver.WatchRequest{Prefix: e.l.name, Exact: true})
}

// Proclaim changes the value, of up to 4 KiB, that a leader is known by. If it fails, the leadership goes
// on; unless the error is [NotDone] the value may be either.
func (l *Leadership) Proclaim(ctx context.Context, value []byte) error {
	if value == nil {
		value = []byte{}
	}
	if err := checkValue(value); err != nil {
		return wrap("proclaim", l.g.c.name, err)
	}
	_, err := l.change(ctx, "proclaim", driver.Change{Proclaim: &value})
	return err
}

// HandOver ends the leadership in favour of the first candidate that waits with
// this [Owner], which may lead before HandOver returns: stop before it what only a leader
// may do. If none waits, it is ErrNotFound and the leadership goes on, as after every
// error that is [NotDone]. After any other, as when ctx ends before the answer, it is not
// known which of them leads: the leadership is over at once, with ErrLost, and what is left
// of it is given back in the background.
func (l *Leadership) HandOver(ctx context.Context, owner string) error {
	if owner == "" {
		return wrap("hand over", l.Name(), invalid("the owner is empty; Release lets anybody lead"))
	}
	_, err := l.change(ctx, "hand over", driver.Change{HandOver: owner})
	if err == nil {
		l.g.c.handedOver()
	}
	return err
}

// Resign is Release.
func (l *Leadership) Resign() error {
	if l == nil {
		return nil
	}
	return l.Release()
}

func (l *Leadership) change(ctx context.Context, op string, ch driver.Change) (driver.Grant, error) {
	defer runtime.KeepAlive(l.Hold)
	c := l.g.c
	if err := firstError(l.ended(), c.r.ready(ctx, "")); err != nil {
		return driver.Grant{}, wrap(op, c.name, err)
	}
	g, err := c.change(ctx, ch)
	return g, c.r.wrap(ctx, op, c.name, driver.FeatureElection, err)
}

// handedOver ends a claim that the backend has ended at its holder's request.
func (c *holdState) handedOver() {
	c.mu.Lock()
	c.moved = true
	c.mu.Unlock()
	c.end(ErrReleased)
}
