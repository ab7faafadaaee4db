package redishold

import (
	"context"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
	"github.com/holdfast-io/holdfast/internal/policy"
)

// lock is a hold on a majority of the servers, and its driver.Handle.
type lock struct {
	r       *redlock
	id      string
	name    string
	session *driver.Session
	next    time.Time // when to extend it; of the client's lock

	mu      sync.Mutex
	over    bool
	unheard bool
	result  error
}

var _ driver.Handle = (*lock)(nil)

// Acquire takes a mutex.
func (r *redlock) Acquire(ctx context.Context, q *driver.Request) (driver.Grant, error) {
	if err := r.begin(ctx); err != nil {
		return driver.Grant{}, err
	}
	if len(q.Wants) != 1 || q.Wants[0].Kind != driver.Mutex || q.Session != nil || q.Spec.Manual {
		return driver.Grant{}, driver.Errorf("", "", errors.ErrUnsupported, "a majority of servers can grant mutexes only, one at a time")
	}
	if err := policy.None(&q.Spec); err != nil {
		return driver.Grant{}, err
	}
	if !r.enter() {
		return driver.Grant{}, errClosed
	}
	defer r.leave()
	if q.Try {
		return r.try(ctx, q)
	}
	return r.queue(ctx, q)
}

// try asks until the servers agree. Attempts of several that get a server each, and
// leave it a moment later, are no reason to say that somebody holds the mutex.
func (r *redlock) try(ctx context.Context, q *driver.Request) (driver.Grant, error) {
	until := driver.Now().Add(r.opts.slack(q.Spec.TTL))
	for {
		g, split, err := r.attempt(ctx, q)
		if !split || driver.Until(until) <= 0 {
			return g, err
		}
		select {
		case <-time.After(time.Millisecond + rand.N(r.opts.BusyWaitMin)):
		case <-ctx.Done():
			return driver.Grant{}, gaveup.Error(ctx, driver.Unknown)
		case <-r.life.Done():
			return driver.Grant{}, closedWith(driver.Unknown)
		}
	}
}

// queue waits until the mutex is had. One goroutine a name asks the servers; the
// others of this client wait behind it in order.
func (r *redlock) queue(ctx context.Context, q *driver.Request) (driver.Grant, error) {
	name := q.Wants[0].Name
	turn, place := r.enqueue(name)
	defer r.stepOut(name, turn)
	told := false
	tell := func() {
		if !told && q.Waiting != nil {
			q.Waiting(place)
		}
		told = true
	}
	select {
	case <-turn.mine:
	default:
		tell()
		select {
		case <-turn.mine:
		case <-ctx.Done():
			return driver.Grant{}, gaveup.Error(ctx, driver.NotDone)
		case <-r.life.Done():
			return driver.Grant{}, errClosed
		}
	}
	outcome := driver.NotDone
	for {
		g, _, err := r.attempt(ctx, q)
		if !errors.Is(err, driver.ErrHeld) {
			return g, err
		}
		if e, ok := errors.AsType[*driver.Error](err); ok && e.Outcome != driver.NotDone {
			outcome = driver.Unknown
		}
		tell()
		select {
		case <-turn.freed:
		case <-time.After(r.opts.BusyWaitMin + rand.N(r.opts.BusyWaitMax-r.opts.BusyWaitMin+1)):
		case <-ctx.Done():
			return driver.Grant{}, gaveup.Error(ctx, outcome)
		case <-r.life.Done():
			return driver.Grant{}, closedWith(outcome)
		}
	}
}

// attempt asks all servers once. A server that did not clearly say no is told to free
// the lock if it comes to nothing. split: it is refused, and nobody can have it.
func (r *redlock) attempt(ctx context.Context, q *driver.Request) (g driver.Grant, split bool, err error) {
	name, ttl := q.Wants[0].Name, q.Spec.TTL
	id := hex.EncodeToString(q.ID[:]) + "." + newName()[:8]
	k := &lock{r: r, id: id, name: name, session: driver.NewSession(sessionID(), q.Spec)}
	within, cancel := context.WithTimeoutCause(ctx, r.opts.slack(ttl), errSlow)
	defer cancel()
	sent := driver.Now()
	asked, stop := context.WithTimeout(r.life, ttl)
	v := r.voteUntil(asked, stop, func(ctx context.Context, rc rueidis.Client) ([]string, error) {
		return takeScript.run(ctx, rc, r.keys(name, id), []string{id, millis(ttl), q.Spec.Owner, q.Spec.Meta})
	})
	v.decide(within)
	token, err := r.grant(ctx, within, k, v)
	if err != nil {
		v.rest(within)
		r.takeBack(k, v)
		return driver.Grant{}, v.split(), err
	}
	k.session.Extend(sent, ttl)
	if !r.add(k) {
		r.takeBack(k, v)
		return driver.Grant{}, false, closedWith(driver.Unknown)
	}
	return driver.Grant{Token: token, Session: k.session, Handle: k}, false, nil
}

var errSlow = errors.New("the servers were too slow: too little of the TTL would be left")

func sessionID() (id driver.SessionID) {
	_, _ = hex.Decode(id[:], []byte(newName())) // it was encoded just now
	return id
}

// grant draws the token of a lock that a majority gave: greater than any that
// one of them knows, and known to a majority before the grant returns, so that
// every later majority has one that knows it.
func (r *redlock) grant(ctx, within context.Context, k *lock, v *vote) (driver.Token, error) {
	if !v.passed() {
		return 0, r.refusal(ctx, k.name, v)
	}
	var token driver.Token
	for _, b := range v.got {
		if b.reply != nil && b.reply[0] == "ok" {
			in := reader{rest: b.reply[1:]}
			token = max(token, in.token())
		}
	}
	token++
	keys, args := r.keys(k.name, k.id), []string{k.id, strconv.FormatUint(uint64(token), 10)}
	w := r.vote(within, func(ctx context.Context, rc rueidis.Client) ([]string, error) {
		return tokenScript.run(ctx, rc, keys, args)
	})
	w.decide(within)
	if w.passed() {
		return token, nil
	}
	return 0, r.refusal(ctx, k.name, w)
}

// refusal is the error of an attempt: faults that decide are an error of the
// servers, and else the mutex is held, by the holder that most name. Servers that have granted it, or have not answered,
// keep it until they hear that it is not wanted: nothing was done for certain if most refused.
func (r *redlock) refusal(ctx context.Context, name string, v *vote) error {
	outcome := driver.Unknown
	if v.refused() {
		outcome = driver.NotDone
	}
	if r.life.Err() != nil {
		return closedWith(outcome)
	}
	if ctx.Err() != nil {
		return gaveup.Error(ctx, outcome)
	}
	e := &driver.Error{Name: name, Kind: driver.ErrHeld, Outcome: outcome}
	if v.no == 0 || !v.refused() && v.faults >= hopeless(v.n) {
		return v.verdict(ctx)
	}
	most, tokens := map[string]int{}, map[string]driver.Token{}
	for _, b := range v.got {
		if b.reply == nil || b.reply[0] != "held" {
			continue
		}
		in := reader{rest: b.reply[1:]}
		id, c := in.holder(name)
		most[id]++
		// Not every server has been told the token yet.
		tokens[id] = max(tokens[id], c.Token)
		c.Token = tokens[id]
		if len(e.Holders) == 0 || most[id] > 1 {
			e.Holders = []driver.Claim{c}
		}
	}
	return e
}

// holder takes the holder of a lock.
func (r *reader) holder(name string) (id string, c driver.Claim) {
	id = r.text()
	return id, driver.Claim{
		Name: name, Kind: driver.Mutex, Weight: 1, Owner: r.text(), Meta: r.text(), Token: r.token(), Held: r.millis(), ExpiresIn: max(r.millis(), 0),
	}
}

// takeBack frees a lock that was not granted wherever it may have been taken:
// where the answer was not a clean no, also if it is still to come. As far as the
// servers answer soon, nothing is left of it when it returns.
func (r *redlock) takeBack(k *lock, v *vote) {
	var taken []int
	for _, b := range v.got {
		if b.taken() {
			taken = append(taken, b.node)
		}
	}
	r.free(k, taken).rest(r.life)
	undo := func(b ballot) {
		if b.taken() {
			r.owe(b.node, k)
		}
	}
	if late := v.n - len(v.got); late > 0 {
		r.spawn(func() {
			for range late {
				undo(<-v.ballots)
			}
		})
	}
}

// add has a hold extended from now on; false: the client is closed.
func (r *redlock) add(k *lock) bool {
	r.once.Do(func() { r.spawn(r.keep) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	k.next = driver.Now().Add(r.opts.extension(k.session.Spec.TTL))
	r.holds[k.id] = k
	nudge(r.wake)
	return true
}

func (r *redlock) remove(k *lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.holds, k.id)
}

// free tells servers to free a lock. Those that did not hear it are told again. It is for
// calls that have entered, and for Close.
func (r *redlock) free(k *lock, nodes []int) *vote {
	v := r.newVote()
	v.n = len(nodes)
	for _, i := range nodes {
		r.work.Go(func() {
			within, cancel := context.WithTimeout(context.Background(), r.opts.slack(k.session.Spec.TTL))
			defer cancel()
			b := ballot{node: i}
			rc, err := r.nodes[i].client(within)
			if err == nil {
				b.reply, err = freeScript.run(within, rc, r.keys(k.name, k.id), k.freeArgs())
			}
			if b.err = err; err != nil {
				b.reply = nil
				r.owe(i, k)
			}
			v.ballots <- b
		})
	}
	return v
}

// freeAll tells all servers to free a lock, and waits for a majority, and for the
// others if they answer soon: the caller that released it sees it free.
func (r *redlock) freeAll(ctx context.Context, k *lock) *vote {
	nodes := make([]int, len(r.nodes))
	for i := range nodes {
		nodes[i] = i
	}
	v := r.free(k, nodes)
	v.decide(ctx)
	v.rest(ctx)
	return v
}

func (k *lock) freeArgs() []string { return []string{k.id, millis(k.session.Spec.TTL)} }

// Release frees the lock; ErrLost if a majority no longer has it. Close has freed that of a
// closed client.
func (k *lock) Release(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return k.result
	}
	if !k.r.enter() {
		return errClosed
	}
	defer k.r.leave()
	k.r.remove(k)
	v := k.r.freeAll(ctx, k)
	k.r.handOn(k.name)
	switch {
	case v.passed(), v.refused() && k.unheard:
	case v.refused():
		k.result = errEnded
	default:
		k.unheard = true
		return v.verdict(ctx)
	}
	k.over = true
	k.session.End(driver.ErrReleased)
	return k.result
}

// Change is not for mutexes.
func (*lock) Change(context.Context, driver.Change) (driver.Grant, error) {
	return driver.Grant{}, errors.ErrUnsupported
}

// keep extends the locks that are due, all in one pipeline a server, as long as
// the client lives.
func (r *redlock) keep() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for r.life.Err() == nil {
		due, wait := r.dueLocks()
		if len(due) > 0 {
			r.extend(due)
			continue
		}
		timer.Reset(wait)
		select {
		case <-r.life.Done():
		case <-r.wake:
		case <-timer.C:
		}
	}
}

func (r *redlock) dueLocks() (due []*lock, wait time.Duration) {
	now := driver.Now()
	wait = time.Hour
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, k := range r.holds {
		switch {
		case over(k.session):
			delete(r.holds, id)
		case k.next.After(now):
			wait = min(wait, k.next.Sub(now))
		default:
			due = append(due, k)
		}
	}
	return due, wait
}

// extend asks every server for all locks at once. A lock that a majority
// extended lasts; one that so many have lost that no majority can be left ends
// at once; what is unknown is tried again until its deadline. Once a majority
// has extended all, nobody waits for the others.
func (r *redlock) extend(locks []*lock) {
	ttl := locks[0].session.Spec.TTL
	tasks := make([]task, len(locks))
	for i, k := range locks {
		ttl = min(ttl, k.session.Spec.TTL)
		tasks[i] = task{r.keys(k.name, k.id), []string{k.id, millis(k.session.Spec.TTL)}}
	}
	ctx, cancel := context.WithTimeout(r.life, min(ttl/12, r.opts.slack(ttl), patience))
	sent := driver.Now()
	votes := r.count(ctx, len(locks), r.extendAll(ctx, cancel, tasks))
	for i, k := range locks {
		r.extended(k, votes[i], sent)
	}
}

// extendAll sends the tasks to every server, and calls stop when the last has
// answered.
func (r *redlock) extendAll(ctx context.Context, stop func(), tasks []task) <-chan []rueidis.RedisResult {
	answers := make(chan []rueidis.RedisResult, len(r.nodes))
	var left atomic.Int32
	left.Store(int32(len(r.nodes)))
	for _, n := range r.nodes {
		r.spawn(func() {
			var results []rueidis.RedisResult
			if rc, err := n.client(ctx); err == nil {
				results = extendScript.runAll(ctx, rc, tasks)
			}
			answers <- results
			if left.Add(-1) == 0 {
				stop()
			}
		})
	}
	return answers
}

// count counts the servers' answers for n locks until a majority has extended
// all of them, everybody has answered, or ctx ends.
func (r *redlock) count(ctx context.Context, n int, answers <-chan []rueidis.RedisResult) []*vote {
	votes := make([]*vote, n)
	for i := range votes {
		votes[i] = &vote{n: len(r.nodes)}
	}
	open := func(v *vote) bool { return !v.passed() }
	for left := len(r.nodes); left > 0 && slices.ContainsFunc(votes, open); left-- {
		select {
		case results := <-answers:
			for i := range results {
				reply, err := results[i].AsStrSlice()
				if err != nil {
					reply = nil
				}
				votes[i].count(ballot{reply: reply})
			}
		case <-ctx.Done():
			return votes
		}
	}
	return votes
}

func (r *redlock) extended(k *lock, v *vote, sent time.Time) {
	pause := r.opts.extension(k.session.Spec.TTL)
	switch {
	case v.passed():
		k.session.Extend(sent, k.session.Spec.TTL)
	case v.refused():
		k.session.End(&driver.Error{Kind: driver.ErrLost, Err: errors.New("a majority of the servers does not have it any more")})
	default:
		pause = min(k.session.Spec.TTL/24, time.Second)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k.next = driver.Now().Add(pause*9/10 + rand.N(pause/5+1))
}
