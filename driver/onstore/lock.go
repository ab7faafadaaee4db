package onstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/deadline"
	"github.com/holdfast-io/holdfast/internal/gaveup"
	"github.com/holdfast-io/holdfast/internal/policy"
)

// hold is one lock that is held.
type hold struct {
	d       *onStore
	key     string
	name    string
	token   driver.Token
	session *driver.Session
	life    context.Context    // ends with the first Release
	stop    context.CancelFunc // and with it a renewal that is on its way
	tie     driver.Tie         // to session: its end is that of all this
	timer   *time.Timer        // of the next renewal

	turn       chan struct{} // has room for the one caller that may use the rest
	entry      lockEntry
	revision   driver.Revision
	freed      bool
	tombstoned bool  // a tombstone was sent, and may have been taken
	late       *late // a request to take it that may still come; nil: there is none
	err        error // of the release
}

func (d *onStore) newHold(key, name string, e lockEntry) *hold {
	return &hold{d: d, key: key, name: name, entry: e, turn: make(chan struct{}, 1)}
}

// late is a request to take a lock that was not answered. The engine may take it as long as the
// key is at the revision from.
type late struct{ from driver.Revision }

// sight is a revision as it was first seen, a time of driver.Now.
type sight struct {
	revision driver.Revision
	at       time.Time
}

// Acquire takes the wants one after the other, in order of name.
func (d *onStore) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	for i := range r.Wants {
		if r.Wants[i].Kind != driver.Mutex {
			return driver.Grant{}, errors.ErrUnsupported
		}
	}
	if err := policy.None(&r.Spec); err != nil {
		return driver.Grant{}, err
	}
	var b bundle
	err := d.call(ctx, func(ctx context.Context) error {
		for _, i := range byName(r.Wants) {
			h, err := d.acquire(ctx, r, r.Wants[i].Name)
			if err != nil {
				return d.giveUp(ctx, r.Spec.TTL, &b, err)
			}
			b.add(i, h, len(r.Wants))
		}
		return nil
	})
	if err != nil {
		return driver.Grant{}, err
	}
	return b.grant(), nil
}

// giveUp releases what an Acquire has taken of its wants before why, which it returns unless
// that fails too: then some of the names stay taken for a while. If ctx ends, it goes on in the background, and why says
// whether it is done: what cannot be released in time lapses, since it is not renewed.
func (d *onStore) giveUp(ctx context.Context, ttl time.Duration, b *bundle, why error) error {
	if len(b.holds) == 0 {
		return why
	}
	over := make(chan error, 1)
	var freeing gaveup.Withdrawal
	freeing.Begin()
	d.work.Go(func() {
		ctx, cancel := d.lasting(ttl)
		defer cancel()
		err := b.undo(ctx)
		freeing.End(err == nil)
		if err != nil {
			d.fault("acquire", b.holds[0].name, err)
		}
		over <- err
	})
	select {
	case err := <-over:
		if err != nil {
			return &driver.Error{Outcome: driver.Unknown, Err: errors.Join(why, err)}
		}
	case <-ctx.Done():
	}
	return gaveup.Withdrawn(why, &freeing)
}

// undo releases what nobody wants; what was lost before need not be.
func (b *bundle) undo(ctx context.Context) error {
	var errs []error
	for _, h := range slices.Backward(b.holds) {
		if err := h.freeAt(ctx, endless); !errors.Is(err, driver.ErrLost) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func byName(wants []driver.Want) []int {
	order := make([]int, len(wants))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(wants[a].Name, wants[b].Name) })
	return order
}

// bundle is what one Acquire took.
type bundle struct {
	holds  []*hold
	tokens []driver.Token
}

func (b *bundle) add(i int, h *hold, n int) {
	if b.tokens == nil {
		b.tokens = make([]driver.Token, n)
	}
	b.holds, b.tokens[i] = append(b.holds, h), h.token
}

// grant ties the holds together: the loss of one is the loss of all.
func (b *bundle) grant() driver.Grant {
	first := b.holds[0]
	g := driver.Grant{Token: slices.Max(b.tokens), Session: first.session, Handle: b}
	if len(b.holds) == 1 {
		return g
	}
	g.Tokens = b.tokens
	for _, h := range b.holds[1:] {
		var tie driver.Tie
		tie.To(h.session, func(err error) { first.session.End(err) })
	}
	return g
}

// Release gives everything back, the last first.
func (b *bundle) Release(ctx context.Context) error {
	var errs []error
	for _, h := range slices.Backward(b.holds) {
		errs = append(errs, h.freeAt(ctx, patient))
	}
	return errors.Join(errs...)
}

// Change is unsupported.
func (b *bundle) Change(context.Context, driver.Change) (driver.Grant, error) {
	return driver.Grant{}, errors.ErrUnsupported
}

// acquire takes one lock.
func (d *onStore) acquire(ctx context.Context, r *driver.Request, name string) (*hold, error) {
	a := &attempt{d: d, r: r, name: name, key: lockPrefix + name, holder: hexID(r.ID)}
	if r.Try {
		return a.once(ctx)
	}
	if d.line.size(name) == 0 {
		if h, err := a.once(ctx); !errors.Is(err, driver.ErrHeld) {
			return h, err
		}
	}
	d.line.claims.Store(r.ID, driver.Claim{Name: name, Kind: driver.Mutex, Owner: r.Spec.Owner, Meta: r.Spec.Meta, Session: r.ID})
	defer d.line.claims.Delete(r.ID)
	leave, err := d.line.Wait(ctx, name, r.ID, r.Waiting)
	if err != nil {
		return nil, gaveup.Error(ctx, driver.NotDone)
	}
	defer leave()
	return a.wait(ctx)
}

// attempt is the way to one lock.
type attempt struct {
	d         *onStore
	r         *driver.Request
	name, key string
	holder    string
	left      time.Duration // until the holder that stood in the way is over
	late      *late         // the last request that was not answered; nil: there is none
}

// once tries until it is decided: held by us, or by somebody else. What waits does
// so until ctx ends, also for an engine that does not answer.
func (a *attempt) once(ctx context.Context) (h *hold, err error) {
	pace := endless
	if a.r.Try {
		pace = a.d.bounded(patient)
	}
	err = plain(retry(ctx, pace, func() (p progress, err error) {
		h, p, err = a.try(ctx)
		return p, err
	}))
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Outcome != driver.NotDone {
		a.takeBack()
	}
	return h, err
}

// takeBackFor bounds how long Close waits for what is given back.
const takeBackFor = 3 * time.Second

// lasting is the context of giving back what nobody wants any more: it lasts as long
// as the entry could, and takeBackFor longer than the driver.
func (d *onStore) lasting(ttl time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.life), grace(ttl))
	closed := context.AfterFunc(d.life, func() { time.AfterFunc(takeBackFor, cancel) })
	return ctx, func() { closed(); cancel() }
}

// takeBack gives the lock back if a request that was given up took it, and sees to it that none
// takes it later: nobody would give it back then.
func (a *attempt) takeBack() {
	d := a.d
	d.work.Go(func() {
		ctx, cancel := d.lasting(a.r.Spec.TTL)
		defer cancel()
		h := d.newHold(a.key, a.name, lockEntry{Holder: a.holder})
		h.late = a.late
		if err := h.freeAt(ctx, endless); err != nil && !errors.Is(err, driver.ErrLost) {
			d.fault("acquire", a.name, err)
		}
	})
}

// try reads the key and takes the lock if it is free.
func (a *attempt) try(ctx context.Context) (*hold, progress, error) {
	start := driver.Now()
	item, e, err := a.d.readLock(ctx, a.key)
	if err != nil {
		return nil, blind, err
	}
	if e.Holder == a.holder { // the answer to our own request was lost
		return a.retake(ctx, &item, e, start)
	}
	if a.left = a.d.timeLeft(&item, e); a.left > 0 {
		return nil, looked, final{a.held(&item, e)}
	}
	next := &lockEntry{Holder: a.holder, Owner: a.r.Spec.Owner, Meta: a.r.Spec.Meta, TTL: a.r.Spec.TTL, Last: e.token(item.Revision)}
	if item.Now != 0 {
		next.Since, next.Deadline = item.Now, item.Now+next.TTL
	}
	if item.Revision == 0 {
		next.Last = 0
	}
	revision, err := a.d.swap(ctx, a.key, item.Revision, next)
	if err != nil {
		a.unanswered(err, item.Revision)
		return nil, sent, err
	}
	if driver.Token(revision) <= next.Last {
		return nil, sent, final{driver.Errorf("", a.name, driver.ErrUnavailable,
			"the engine's revision %d is not above the last token %d: it has lost its history, and tokens would repeat", revision, next.Last)}
	}
	return a.take(&driver.Item{Revision: revision}, next, start), sent, nil
}

// unanswered notes a request that the engine may still take. A conflict says that it was not taken.
func (a *attempt) unanswered(err error, from driver.Revision) {
	if !errors.Is(err, driver.ErrConflict) {
		a.late = &late{from}
	}
}

// retake writes what a request of ours wrote before its answer was lost, since nobody
// knows when that was: the hold lasts from now.
func (a *attempt) retake(ctx context.Context, item *driver.Item, e *lockEntry, start time.Time) (*hold, progress, error) {
	e.Token = e.token(item.Revision)
	if item.Now != 0 {
		e.Deadline = item.Now + e.TTL
	}
	revision, err := a.d.swap(ctx, a.key, item.Revision, e)
	if err != nil {
		return nil, sent, err
	}
	return a.take(&driver.Item{Revision: revision}, e, start), sent, nil
}

// take makes the hold: it lasts from before the request was sent.
func (a *attempt) take(item *driver.Item, e *lockEntry, from time.Time) *hold {
	h := a.d.newHold(a.key, a.name, *e)
	h.revision, h.token = item.Revision, e.token(item.Revision)
	h.session = driver.NewSession(a.r.ID, a.r.Spec)
	h.session.Extend(from, e.TTL)
	h.life, h.stop = context.WithCancel(a.d.life)
	a.d.mu.Lock()
	a.d.holds[h] = struct{}{}
	delete(a.d.seenLocks, a.key)
	delete(a.d.idle, a.key)
	a.d.mu.Unlock()
	h.tie.To(h.session, h.over)
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	h.timer = time.AfterFunc(beat(e.TTL), h.renew)
	return h
}

// over ends the renewals. What was lost is given back in the background, for those that would else wait until they
// know that it was not renewed: the program may run on, as one that was stopped for a while does.
func (h *hold) over(cause error) {
	h.stop()
	h.d.mu.Lock()
	delete(h.d.holds, h)
	h.d.mu.Unlock()
	if errors.Is(cause, driver.ErrLost) && h.d.begin() {
		go h.giveBackLost()
	}
}

// lostFor is how long what was lost is given back: one that only tries may be refused for as long, where the engine
// has no clock.
const lostFor = 24 * time.Hour

// giveBackLost gives the lock back unless another has taken it, as soon as the engine answers. It tells no fault: the
// lock lapses in any case. Close ends the pause between two tries, and leaves takeBackFor for the last ones.
func (h *hold) giveBackLost() {
	defer h.d.work.Done()
	ctx, cancel := context.WithTimeout(h.d.life, grace(lostFor))
	defer cancel()
	_ = h.freeAt(ctx, unhurried)
	if h.d.life.Err() == nil {
		return
	}
	ctx, end := context.WithTimeout(context.WithoutCancel(h.d.life), takeBackFor)
	defer end()
	_ = h.freeAt(ctx, endless)
}

// beat is the time between two renewals: a third of the TTL, ± 10 %.
func beat(ttl time.Duration) time.Duration { return ttl*3/10 + jitter(ttl/15) }

// held is ErrHeld.
func (a *attempt) held(item *driver.Item, e *lockEntry) error {
	return &driver.Error{
		Kind: driver.ErrHeld, Outcome: driver.NotDone, Holders: []driver.Claim{a.d.holder(a.name, item, e)}, Waiting: a.d.line.size(a.name),
	}
}

// holder is the claim that an entry tells of.
func (d *onStore) holder(name string, item *driver.Item, e *lockEntry) driver.Claim {
	c := driver.Claim{
		Name: name, Kind: driver.Mutex, Weight: 1, Token: e.token(item.Revision), Owner: e.Owner, Meta: e.Meta,
		Created: driver.Revision(e.token(item.Revision)), Modified: item.Revision, Version: 1,
	}
	if e.Deadline != 0 && item.Now != 0 {
		c.Held, c.ExpiresIn = max(item.Now-e.Since, 0), max(e.Deadline-item.Now, 0)
		return c
	}
	c.Held = d.unchanged(&d.seenLocks, "token of "+name, c.Created) // as far as was seen
	c.ExpiresIn = max(e.TTL-d.unchanged(&d.seenLocks, lockPrefix+name, item.Revision), 0)
	return c
}

// timeLeft is how long the holder of an entry may still believe in it: until its
// deadline on the engine's clock, or until it was not renewed for longer than any
// clock may differ on ours, as far as this driver or the engine has seen. It is 0
// when nobody holds it.
func (d *onStore) timeLeft(item *driver.Item, e *lockEntry) time.Duration {
	switch {
	case e.Holder == "":
		return 0
	case e.Deadline != 0 && item.Now != 0:
		return max(e.Deadline-item.Now+1, 0)
	}
	if item.Age > grace(e.TTL) { // the engine has seen it for so long
		return 0
	}
	return max(grace(e.TTL)-d.unchanged(&d.seenLocks, item.Key, item.Revision), 0)
}

// grace is how long an entry has to be seen unchanged: TTL·(1+ρ), rounded up.
func grace(ttl time.Duration) time.Duration { return ttl + ttl*deadline.Rho/100 + 1 }

// sights is how many locks, and how many keys, a driver remembers at most. Beyond that it
// forgets one for each that comes, not all: waiting for one that was forgotten
// begins anew.
const sights = 1 << 18

// sightings are revisions of keys as they were first seen.
type sightings map[string]sight

// unchanged is how long this driver has seen the key at the revision.
func (d *onStore) unchanged(in *sightings, key string, revision driver.Revision) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := driver.Now()
	s, ok := (*in)[key]
	if !ok || s.revision != revision {
		s = sight{revision, now}
		in.add(key, s)
	}
	return now.Sub(s.at)
}

// add notes a sight; one that chance picks makes room.
func (in *sightings) add(key string, s sight) {
	if *in == nil {
		*in = sightings{}
	}
	if _, known := (*in)[key]; !known && len(*in) >= sights {
		for old := range *in {
			delete(*in, old)
			break
		}
	}
	(*in)[key] = s
}

// readLock reads a lock's key; one that is not there is free.
func (d *onStore) readLock(ctx context.Context, key string) (driver.Item, *lockEntry, error) {
	item, err := d.get(ctx, key)
	if err != nil || item.Revision == 0 {
		return item, &lockEntry{}, err
	}
	item.Key = key
	e, err := decode[lockEntry](&item)
	if err != nil {
		return item, nil, final{err}
	}
	return item, e, nil
}

// wait tries whenever the key changes, its holder's time is over, or a pause has
// passed, until ctx ends.
func (a *attempt) wait(ctx context.Context) (*hold, error) {
	watching, stop := context.WithCancel(ctx)
	changes := make(chan struct{}, 1)
	var over sync.WaitGroup
	over.Go(func() { a.listen(watching, changes) })
	defer over.Wait()
	defer stop()
	for n := 0; ; n++ {
		h, err := a.once(ctx)
		held, ok := errors.AsType[*driver.Error](err)
		if err == nil || !ok || held.Kind != driver.ErrHeld {
			return h, err
		}
		select {
		case <-changes:
			n = -1
		case <-time.After(min(patient.pause(n), a.left)):
		case <-ctx.Done():
			return nil, gaveup.Error(ctx, driver.NotDone)
		}
	}
}

// listen tells of changes of the key. They are no more than a hint to look: the
// pauses serve where one is lost, or the engine cannot tell.
func (a *attempt) listen(ctx context.Context, changes chan<- struct{}) {
	for item, err := range a.d.store.Changed(ctx, a.key) {
		if err != nil {
			return
		}
		if item.Key != "" && item.Key != a.key {
			continue
		}
		select { // also when it begins: what changed before that was not told
		case changes <- struct{}{}:
		default:
		}
	}
}
