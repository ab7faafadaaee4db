package redishold

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// keyClaim is a request for one name, and then the hold. It is the driver.Handle of
// its grant.
type keyClaim struct {
	c    *client
	u    *user
	id   string
	name string
	lost func(cause error)
	// party: others count it while it waits, at a barrier.
	party bool

	// Of the client's lock.
	granted chan driver.Token // has room for the one token; 0: it is gone; nil: not yet queued
	token   driver.Token      // of a grant that was told before the queue
	queued  bool
	forced  bool
	listing *listedName // if it has one key on the server, or is to have
	strike  *listedName // what has to go for it

	args      [8]string         // of its scripts, one at a time
	withdrawn gaveup.Withdrawal // of a request that is not granted
	mu        sync.Mutex
	unheard   bool // a release may or may not have been heard
	over      bool
	result    error
}

var _ driver.Handle = (*keyClaim)(nil)

// maxUnits bounds limits and weights, which the server adds as floating point.
const maxUnits = 1 << 50

// Acquire takes all of r.Wants or none. Several are taken one after the other
// in order of name, so that nobody waits in a circle.
func (c *client) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if ctx.Err() != nil {
		return driver.Grant{}, gaveup.Error(ctx, driver.NotDone)
	}
	if r.MaxHold > 0 || r.MinHold > 0 || r.Delay > 0 {
		return driver.Grant{}, driver.Errorf("", "", errors.ErrUnsupported, "the redis backend has no max-hold, min-hold or delay")
	}
	for i := range r.Wants {
		if w := &r.Wants[i]; w.Limit > maxUnits || w.Weight > maxUnits {
			return driver.Grant{}, driver.Errorf("", w.Name, fs.ErrInvalid, "a limit or weight above 2⁵⁰ is too great for Redis")
		}
	}
	u, err := c.userFor(ctx, r)
	if err != nil {
		return driver.Grant{}, err
	}
	if len(r.Wants) > 1 {
		return c.acquireAll(ctx, u, r)
	}
	k, token, err := c.acquire(ctx, u, r, 0, r.Lost, r.Waiting)
	if err != nil {
		return driver.Grant{}, err
	}
	return driver.Grant{Token: token, Session: u.session, Handle: k}, nil
}

// userFor is the session that a request hangs on.
func (c *client) userFor(ctx context.Context, r *driver.Request) (*user, error) {
	if r.Session == nil {
		return c.sharedUser(ctx, r.Spec)
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	if u := c.ownUser(r.Session); u != nil {
		return u, nil
	}
	return nil, ended(r.Session)
}

// acquire takes the i-th want.
func (c *client) acquire(ctx context.Context, u *user, r *driver.Request, i int, lost func(error), waiting func(int)) (*keyClaim, driver.Token, error) {
	w, sent := &r.Wants[i], driver.Now()
	k := &keyClaim{c: c, u: u, id: claimID(r.ID, i), name: w.Name, lost: lost}
	k.args = [8]string{k.id, u.sid, c.id, w.Name, "", u.details(w, r.Try), string(r.Value)}
	args := k.args[:7]
	if short, listed := c.enlist(k, w.Kind == driver.Mutex && c.fresh(u, sent)); short {
		args[4] = u.clock.at(sent)
		if !listed {
			args = k.args[:8]
		}
	}
	if w.Kind == driver.Barrier {
		return c.arrive(ctx, k, sent, waiting)
	}
	token, reply, err := c.rc.quick(ctx, acquireScript, c.keys, args)
	for err == nil && reply != nil && reply[0] == "more" { // as in call
		token, reply, err = c.rc.quick(ctx, acquireScript, c.keys, args)
	}
	if err != nil {
		k.failed(err)
		return nil, 0, gaveup.Withdrawn(failure(ctx, err), &k.withdrawn)
	}
	if reply == nil {
		token, err := k.quickly(ctx, token)
		return k, token, gaveup.Withdrawn(err, &k.withdrawn)
	}
	c.delist(k, false)
	t, err := k.settle(ctx, reply, sent, waiting)
	return k, t, gaveup.Withdrawn(err, &k.withdrawn)
}

// enlist adds a claim to the client's, and puts its name on the session's list if it may go the
// short way and there is room; listed: the server has the name there.
func (c *client) enlist(k *keyClaim, fresh bool) (short, listed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.u.gone {
		return false, false // nobody would take it off the list
	}
	c.claims[k.id], k.u.claims[k] = k, struct{}{}
	if !fresh {
		return false, false
	}
	if k.listing, k.strike, short = k.u.list.take(k.name); !short {
		return false, false
	}
	if k.strike != nil {
		k.args[7] = k.strike.name
	}
	return true, k.listing.listed
}

// delist takes the name of a claim back that was not granted the short way.
func (c *client) delist(k *keyClaim, unheard bool) {
	if k.listing == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k.u.list.refused(k.listing, k.strike, unheard)
	k.listing, k.strike = nil, nil
}

// failed ends a request that has no answer. It is taken back, which the server has to
// remember, unless the server says that it did nothing.
func (k *keyClaim) failed(err error) {
	refused := untouched(err)
	k.c.delist(k, !refused)
	if refused {
		k.forget()
		return
	}
	k.withdraw()
}

// claimID is the i-th of a request.
func claimID(id [16]byte, i int) string {
	b := make([]byte, 0, 40)
	b = append(hex.AppendEncode(b, id[:]), '.')
	return string(strconv.AppendInt(b, int64(i), 10))
}

// settle follows the server's answer to the grant, or to an error.
func (k *keyClaim) settle(ctx context.Context, reply []string, sent time.Time, waiting func(int)) (driver.Token, error) {
	r := reader{rest: reply[1:]}
	switch reply[0] {
	case "ok":
		token := r.uint()
		if r.flag() {
			k.u.session.Extend(sent, k.u.session.Spec.TTL)
		} else {
			sent = k.u.extended()
		}
		if k.party {
			return driver.Token(token), r.err
		}
		if err := k.intime(ctx, sent); err != nil {
			k.withdraw()
			return 0, err
		}
		return driver.Token(token), r.err
	case "queued":
		return k.wait(ctx, int(r.int()), waiting)
	case "nosession":
		k.forget()
		k.c.retire(k.u, errNoSession)
		return 0, ended(k.u.session)
	}
	k.forget()
	return 0, refusal(k.name, reply)
}

// quickly takes the token of a grant that did not extend the session.
func (k *keyClaim) quickly(ctx context.Context, token int64) (driver.Token, error) {
	k.c.mu.Lock()
	k.u.list.granted(k.listing, k.strike)
	k.strike = nil
	k.c.mu.Unlock()
	if err := k.intime(ctx, k.u.extended()); err != nil {
		k.withdraw()
		return 0, err
	}
	return driver.Token(token), nil
}

// renewals is how often a session is renewed at most to make up for a slow
// grant.
const renewals = 3

// intime sees to it that a hold with a session that was extended at sent has the
// validity that it is to have: after a slow answer the session is renewed, and if that is
// slow too, it is an error.
func (k *keyClaim) intime(ctx context.Context, sent time.Time) error {
	ttl := k.u.session.Spec.TTL
	slack := k.c.opts.slack(ttl)
	took := driver.Now().Sub(sent)
	for range renewals {
		if took <= slack {
			return nil
		}
		sent = driver.Now()
		err := k.c.renewNow(ctx, k.u, ttl)
		took = driver.Now().Sub(sent)
		if errors.Is(err, driver.ErrLost) {
			return tooSlow(k.name, took, ttl)
		}
		if err != nil {
			return err
		}
	}
	if took <= slack {
		return nil
	}
	return tooSlow(k.name, took, ttl)
}

// tooSlow is the error of a call with a session that ended, or nearly so, before its
// answer came: nothing that anybody had is lost.
func tooSlow(name string, took, ttl time.Duration) error {
	e := driver.Errorf("", name, driver.ErrUnavailable, "the server takes %s to answer, which leaves too little of the TTL of %s; what it granted is given back", took.Round(time.Millisecond), ttl)
	e.RetryAfter = retryIn
	return e
}

// wait waits in the server's queue.
func (k *keyClaim) wait(ctx context.Context, position int, waiting func(int)) (driver.Token, error) {
	granted := k.queue()
	defer k.unqueue()
	if waiting != nil {
		waiting(position)
	}
	select {
	case token := <-granted:
		return k.fresh(ctx, token)
	case <-ctx.Done():
		if k.party {
			return k.leave(ctx)
		}
		k.withdraw()
		return 0, gaveup.Error(ctx, driver.NotDone)
	case <-k.u.session.Done():
		k.leaveIt()
		return 0, k.maybeCounted(ended(k.u.session))
	case <-k.c.life.Done():
		k.leaveIt()
		return 0, k.maybeCounted(errClosed)
	}
}

// fresh renews the session of a claim that waited, if it must be so that the
// holder has the validity it is to have.
func (k *keyClaim) fresh(ctx context.Context, token driver.Token) (driver.Token, error) {
	if token == 0 {
		k.forget()
		return 0, k.maybeCounted(&driver.Error{Kind: driver.ErrLost, Outcome: driver.NotDone, Err: errors.New("the server has forgotten the wait: its session ended there, or it lost its data")})
	}
	ttl := k.u.session.Spec.TTL
	d, ok := k.u.session.Deadline()
	if ok && !k.party && driver.Until(d) < ttl-k.c.opts.slack(ttl)-ttl/20 {
		if err := k.c.renewNow(ctx, k.u, ttl); err != nil {
			k.withdraw()
			return 0, err
		}
	}
	return token, nil
}

// queue counts the claim as one that waits. The channel gets its token, which
// may have come before.
func (k *keyClaim) queue() <-chan driver.Token {
	c := k.c
	c.mu.Lock()
	k.queued, k.granted = true, make(chan driver.Token, 1)
	c.waits++
	if k.token > 0 {
		k.granted <- k.token
	}
	c.mu.Unlock()
	nudge(c.wakePoller)
	return k.granted
}

func (k *keyClaim) unqueue() {
	k.c.mu.Lock()
	k.queued = false
	k.c.waits--
	k.c.mu.Unlock()
	nudge(k.c.wakePoller)
}

// forget takes the claim off the client's list.
func (k *keyClaim) forget() {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	delete(k.c.claims, k.id)
	delete(k.u.claims, k)
	if k.listing != nil {
		k.u.list.leave(k.listing)
		k.listing = nil
	}
}

// fresh reports that the server may grant a mutex without the rest of its work:
// the session need not be extended, and leaves the answer a quarter of the time
// that it may take.
func (c *client) fresh(u *user, now time.Time) bool {
	ttl := u.session.Spec.TTL
	d, ok := u.session.Deadline()
	return ok && d.Sub(now) >= ttl-c.opts.slack(ttl)*3/4
}

// withdraw takes a request back that the server may have granted, until it has
// heard or the session is over.
func (k *keyClaim) withdraw() {
	k.forget()
	k.withdrawn.Begin()
	begun := k.c.spawn(func() {
		k.withdrawn.End(k.c.insist(k.u.session.Done(), releaseScript, k.id, k.u.sid, "1", k.name))
	})
	if !begun {
		k.withdrawn.End(false)
	}
}

// leaveIt leaves a request that waits to the end of its session on the server, which may grant it before.
func (k *keyClaim) leaveIt() {
	k.forget()
	k.withdrawn.Doubt()
}

// lose tells the holder that its hold was taken by force.
func (c *client) lose(id string) {
	c.mu.Lock()
	k := c.claims[id]
	tell := k != nil && !k.forced
	if tell {
		k.forced = true
	}
	c.mu.Unlock()
	if tell {
		k.lost(errForced)
	}
}

// served hands the token of a grant to its waiter.
func (c *client) served(id string, token driver.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.claims[id]
	if k == nil {
		return
	}
	if k.granted == nil {
		k.token = token
		return
	}
	select {
	case k.granted <- token:
	default:
	}
}

// Release gives the hold back. A call after one that nobody knows the outcome
// of is answered as the first would have been: what is gone then is what it
// freed, since a loss by force is remembered.
func (k *keyClaim) Release(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return k.result
	}
	k.args[2], k.args[3] = "0", k.name
	_, reply, err := k.c.rc.quick(ctx, releaseScript, k.c.keys, k.args[:4])
	if err != nil {
		k.unheard = true
		return pressing(ctx, err)
	}
	k.over = true
	k.forget()
	if reply != nil && reply[0] != "ok" && !(reply[0] == "gone" && k.unheard) {
		k.result = errEnded
	}
	return k.result
}

// Change proclaims a value, or hands the leadership over.
func (k *keyClaim) Change(ctx context.Context, ch driver.Change) (driver.Grant, error) {
	what, arg := "", ""
	switch {
	case ch.Proclaim != nil:
		what, arg = "v", string(*ch.Proclaim)
	case ch.HandOver != "":
		what, arg = "o", ch.HandOver
	default:
		return driver.Grant{}, errors.ErrUnsupported
	}
	reply, err := k.c.ask(ctx, k.name, changeScript, k.id, k.u.sid, what, arg, "")
	for err == nil && reply[0] == "next" {
		reply, err = k.c.ask(ctx, k.name, changeScript, k.id, k.u.sid, what, arg, reply[1])
	}
	if err != nil {
		if reply != nil && reply[0] == "noexist" {
			err = driver.Errorf("", k.name, fs.ErrNotExist, "no candidate with the owner %q waits", arg)
		}
		return driver.Grant{}, err
	}
	if what == "o" {
		k.forget()
	}
	return driver.Grant{}, nil
}

// all is the hold of several names.
type all []*keyClaim

var _ driver.Handle = all(nil)

// acquireAll takes the wants in order of name.
func (c *client) acquireAll(ctx context.Context, u *user, r *driver.Request) (driver.Grant, error) {
	order := make([]int, len(r.Wants))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(r.Wants[a].Name, r.Wants[b].Name) })
	var once sync.Once
	lost := func(cause error) { once.Do(func() { r.Lost(cause) }) }
	var told sync.Once
	waiting := func(position int) {
		if r.Waiting != nil {
			told.Do(func() { r.Waiting(position) })
		}
	}
	g := driver.Grant{Session: u.session, Tokens: make([]driver.Token, len(r.Wants))}
	held := all{}
	for _, i := range order {
		k, token, err := c.acquire(ctx, u, r, i, lost, waiting)
		if err != nil {
			return driver.Grant{}, held.giveUp(ctx, err)
		}
		held, g.Tokens[i] = append(held, k), token
	}
	g.Token, g.Handle = slices.Max(g.Tokens), held
	return g, nil
}

// giveUp frees what was taken before one could not be had, for why, which it returns unless that fails too: then
// some of the names stay taken for a while. If ctx has ended, it goes on in the background, and why says whether it is done.
func (a all) giveUp(ctx context.Context, why error) error {
	failed, freeing := []error{why}, []*gaveup.Withdrawal{}
	for _, k := range slices.Backward(a) {
		if err := k.Release(ctx); err != nil && !errors.Is(err, driver.ErrLost) {
			k.withdraw()
			failed, freeing = append(failed, err), append(freeing, &k.withdrawn)
		}
	}
	if len(failed) == 1 || ctx.Err() != nil {
		return gaveup.Withdrawn(why, freeing...)
	}
	return &driver.Error{Outcome: driver.Unknown, Err: errors.Join(failed...)}
}

// Release gives all of them back, the last one first.
func (a all) Release(ctx context.Context) error {
	var errs []error
	for _, k := range slices.Backward(a) {
		errs = append(errs, k.Release(ctx))
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	return errors.Join(errs...)
}

// Change is not for several names.
func (all) Change(context.Context, driver.Change) (driver.Grant, error) {
	return driver.Grant{}, errors.ErrUnsupported
}
