package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// LeasedLimiter is a [Limiter] that takes blocks from the backend and decides itself
// as long as one lasts: never more is allowed than the rate says, at a small part of the
// calls. Safe for concurrent use.
//
// A block is what a key needs in a quarter of a second, taken so far ahead, and the next one is
// fetched when half of it is used. A cost above what is left of it takes what it lacks from the backend. Where
// the rate does not allow that at once it comes
// later, in the order in which programs asked, and until then the program refuses
// without asking. Where the backend refuses, it is asked again a second later at the
// latest.
//
// What is above twice the need of the last second or two is given back; all of it, when no
// caller has asked for the key for so long, and by Close. A cost that is refused for longer than a quarter of
// a second is no need. If it is certain that the backend
// was not told, because it was away, that is repeated a second later, and so on. What the
// backend may have been told without an answer passes unused.
//
// A program that is killed or stopped has its block no longer than the rate allows: the block
// of a bucket passes by itself, soon after the time for which it was taken; the block of a
// window passes with the window. Of a window of a minute or more a block is at most a sixteenth of Count.
//
// After SetRate, Reset or Delete programs use what they have left of their blocks beside what is new, until
// their next block comes: then they drop those before. Of a bucket that was reset they keep them, as long as they last.
//
// Every decision asks the backend where nothing can be used later than it was taken: with a
// sliding window, with a log, and when a bucket's whole burst is asked for, for which the block is given back
// first. So does a caller that gets a block after its time has passed, and one with a cost near the burst, of which a part
// would have passed before the rest can be used.
type LeasedLimiter struct {
	l *Limiter

	mu     sync.Mutex
	keys   map[string]*leasedKey // that were asked for since the last look
	before map[string]*leasedKey // that were asked for since the look before
	timer  *time.Timer           // gives back what is not used; nil: there is nothing
	closed chan struct{}         // when Close has begun
	// fetching are the requests for blocks that are not answered yet: one for each key.
	fetching map[string]*blockFetch
	// rate is what the backend has told last: a limiter that was given none goes by it.
	rate limit.Rate
	rest leasedRest
}

// Leased is the limiter by blocks; it does no I/O. Close gives back what is left.
func (l *Limiter) Leased() *LeasedLimiter {
	return &LeasedLimiter{l: l, keys: map[string]*leasedKey{}, closed: make(chan struct{}), fetching: map[string]*blockFetch{}}
}

const (
	// blockAhead is the time that a block is for, and how far ahead it is taken.
	blockAhead = 250 * time.Millisecond
	// blockIdle is how often keys that no caller asks for are looked for.
	blockIdle = time.Second
	// blockAgain is after how long the backend is asked again at the latest: others may
	// have given back.
	blockAgain = time.Second
	// longWindow is from when on a window is long: a block of it is small.
	longWindow = time.Minute
	// blockLate is for how long the answer to a request is awaited, so that what was taken
	// for it is not lost.
	blockLate = time.Minute
	// blockTries is how many blocks are fetched for one cost. Where answers take long, so much of those
	// before may pass until the last one is there that they never are enough together.
	blockTries = 3
	// giveBackAtOnce is how many keys are given back at a time.
	giveBackAtOnce = 32
)

// blockFetch is a request for a block. Its failure is that of all callers that wait for it:
// one after the other they would wait for as many requests as they are.
type blockFetch struct {
	done chan struct{} // closed when it is answered, or given up
	once sync.Once
	err  error // when done is closed
	late bool  // the block came when it was of no use any more; when done is closed
}

// noFetch is for a cost for which no more are worth it.
func noFetch() *blockFetch {
	f := &blockFetch{done: make(chan struct{}), late: true}
	f.end(nil)
	return f
}

func (f *blockFetch) end(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.done)
	})
}

// Allow is [Limiter.Allow].
func (l *LeasedLimiter) Allow(ctx context.Context, key string) (limit.Decision, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN is [Limiter.AllowN]. Of its Decision, Remaining is what the program can take at once of
// its blocks, and ResetAfter what is left of the time that the backend has told with it.
func (l *LeasedLimiter) AllowN(ctx context.Context, key string, n int64) (limit.Decision, error) {
	if err := firstError(l.l.err, checkLimitKey(key, l.l.s.r.maxName()), checkCost(n), l.l.s.r.ready(ctx, driver.FeatureLimit)); err != nil {
		return limit.Decision{}, wrap("allow", l.l.name, err)
	}
	for c := (leasedCall{key: key, cost: n}); ; {
		if l.isClosed() {
			return limit.Decision{}, wrap("allow", l.l.name, errClosed)
		}
		rate, err := l.known(ctx, key)
		if err != nil {
			return limit.Decision{}, err
		}
		if !byBlocks(rate, n) && !l.isClosed() { // it may have been closed while the rate was asked for
			return l.whole(ctx, key, n, rate)
		}
		d, fetch, err := l.try(&c, rate)
		if fetch == nil || err != nil {
			return d, wrap("allow", l.l.name, err)
		}
		select {
		case <-fetch.done:
			if fetch.err != nil {
				return limit.Decision{}, wrap("allow", l.l.name, fetch.err)
			}
			if fetch.late && !l.isClosed() { // and the next one would be
				return l.whole(ctx, key, n, rate)
			}
		case <-l.closed: // the block goes back
		case <-ctx.Done():
			return limit.Decision{}, wrap("allow", l.l.name, &Error{Kind: ctx.Err(), Outcome: driver.NotDone, Err: causeOf(ctx, ctx.Err())})
		}
	}
}

// known is the rate that blocks are sized by: the limiter's, or what the backend told last.
func (l *LeasedLimiter) known(ctx context.Context, key string) (limit.Rate, error) {
	if rate := *l.l.rate.Load(); rate.Count != 0 {
		return rate, nil
	}
	l.mu.Lock()
	rate := l.rate
	l.mu.Unlock()
	if rate.Count != 0 {
		return rate, nil
	}
	rate, err := l.l.known(ctx, "allow", key)
	if err != nil {
		return rate, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate = rate
	return rate, nil
}

// byBlocks: a cost of n can be had of a block. What is taken of a bucket begins to refill when
// it can first be used, and the whole burst has no later moment to begin: some of it is
// gone when the answer comes.
func byBlocks(rate limit.Rate, n int64) bool {
	if fills(rate) {
		return n > 0 && n < rate.Limit()
	}
	return n > 0 && n <= rate.Limit() && !sliding(rate)
}

// fills: the rate is a bucket's, which takes nothing back of what something was taken behind.
func fills(rate limit.Rate) bool {
	return rate.Algorithm == limit.GCRA || rate.Algorithm == limit.TokenBucket
}

// sliding: nothing can be used later than it was taken.
func sliding(rate limit.Rate) bool {
	return rate.Algorithm == limit.SlidingWindow || rate.Algorithm == limit.SlidingLog
}

// whole asks the backend for all of a cost, which can be there only if it has what the program had of the key.
func (l *LeasedLimiter) whole(ctx context.Context, key string, n int64, rate limit.Rate) (limit.Decision, error) {
	if n > 0 && n <= rate.Limit() {
		select {
		case <-l.giveBackBlocks(key):
		case <-ctx.Done():
		}
	}
	return l.l.AllowN(ctx, key, n)
}

// leasedCall is a call that asks for a cost.
type leasedCall struct {
	key     string
	cost    int64
	counted bool // the cost is in the demand
	fetched int  // how many blocks were fetched for it
}

// try decides by what is there, or tells the fetch after which it is worth another try.
func (l *LeasedLimiter) try(c *leasedCall, rate limit.Rate) (d limit.Decision, fetch *blockFetch, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed() {
		return d, nil, errClosed
	}
	now := driver.Now()
	k := l.key(c.key, now)
	d = limit.Decision{Asked: c.cost, Limit: rate.Limit(), Policy: rate.Name, ResetAfter: max(k.reset.Sub(now), 0)}
	left := k.use(c.cost, now, &d)
	lacks := c.cost // when it is asked for the next time
	if !d.Allowed {
		lacks -= left
		begins, ever := k.together(c.cost, now)
		if lacks <= 0 && !ever {
			return d, noFetch(), nil
		}
		d.RetryAfter = k.refusal(lacks, begins, rate, now)
	}
	k.count(c, d.RetryAfter, now)
	size := k.size(lacks, rate)
	enough := d.Allowed && (2*left >= size || len(k.blocks) > 1 || k.demand.rare(c.cost)) || lacks <= 0
	if fetch = k.fetch; !enough && fetch == nil && !k.refuses(lacks, now) {
		fetch = l.fetchFor(c, k, lacks, size)
	}
	l.giveBackSurplus(c.key, k, now)
	if d.Allowed || d.RetryAfter > 0 {
		return d, nil, nil
	}
	return d, fetch, nil
}

// fetchFor takes a block that has what a cost lacks, beside the callers.
func (l *LeasedLimiter) fetchFor(c *leasedCall, k *leasedKey, lacks, size int64) *blockFetch {
	if c.fetched++; c.fetched > blockTries {
		return noFetch()
	}
	return l.fetch(c.key, k, lacks, size)
}

// key is what the program has of a key, which is in use.
func (l *LeasedLimiter) key(key string, now time.Time) *leasedKey {
	k := l.keys[key]
	if k == nil {
		k = l.asked(key, now)
		delete(l.before, key)
		l.keys[key] = k
	}
	return k
}

// asked is what the program has of a key that was not asked for since the last look.
func (l *LeasedLimiter) asked(key string, now time.Time) *leasedKey {
	k := l.before[key]
	if k == nil {
		k = &leasedKey{fetch: l.fetching[key], demand: demand{since: now, second: now}}
		if l.before == nil {
			l.before = map[string]*leasedKey{}
		}
		l.before[key] = k
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(blockIdle, l.giveBackIdle)
	}
	return k
}

// giveBackSurplus gives back, the newest first, the blocks above twice of what was
// needed lately: a key that is asked for now and then would keep the rest of a rush
// from other programs until its window ends.
func (l *LeasedLimiter) giveBackSurplus(key string, k *leasedKey, now time.Time) {
	var left int64
	for _, b := range k.blocks {
		left += b.left(now)
	}
	if left == 0 || k.fetch != nil && fills(k.blocks[0].Rate) {
		return
	}
	keep, need := len(k.blocks), 2*max(k.demand.most, k.demand.before, k.demand.last)
	for ; keep > 0 && left > need && !now.Before(k.blocks[keep-1].again); keep-- {
		left -= k.blocks[keep-1].left(now)
	}
	if keep == len(k.blocks) {
		return
	}
	off := slices.Clone(k.blocks[keep:])
	k.blocks = slices.Delete(k.blocks, keep, len(k.blocks))
	k.returned = l.giveBackBeside(key, k, off, now)
}

// giveBackBlocks gives back all that the program has of a key. It is done when the channel is closed.
func (l *LeasedLimiter) giveBackBlocks(key string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := cmp.Or(l.keys[key], l.before[key], &leasedKey{})
	off := k.blocks
	k.blocks = nil
	return l.giveBackBeside(key, k, off, driver.Now())
}

// giveBackBeside gives back blocks of a key beside the callers. It is called with the lock.
func (l *LeasedLimiter) giveBackBeside(key string, k *leasedKey, off []*leasedBlock, now time.Time) <-chan struct{} {
	k.follow(off, now)
	done := make(chan struct{})
	if len(off) == 0 || l.isClosed() {
		close(done)
		return done
	}
	l.rest.returns.Add(1)
	over := func() { close(done); l.rest.returns.Done() }
	if !l.l.s.r.spawn(func() {
		defer over()
		l.giveBackAll(l.l.s.r.life, map[string]*leasedKey{key: {blocks: off}})
	}) {
		over()
	}
	return done
}

// blockPart is which part of what a rate allows at once a block is at most. What a program that is killed has of a
// window is lost until that ends: of a long one it is to be little.
func blockPart(rate limit.Rate) int64 {
	if window := rate.Algorithm == limit.FixedWindow && rate.Per >= longWindow; window || rate.Algorithm == limit.CalendarWindow {
		return 16
	}
	return 2
}

// fetch takes a block beside the callers. They wait for it for [patience]; the request goes
// on, because what was taken for it must not be lost, and until it is answered there is no
// other for the key.
func (l *LeasedLimiter) fetch(key string, k *leasedKey, n, size int64) *blockFetch {
	f, returned := &blockFetch{done: make(chan struct{})}, k.returned
	k.fetch, l.fetching[key] = f, f
	late := time.AfterFunc(patience, func() { f.end(errNoBlock()) })
	started := l.l.s.r.spawn(func() {
		if returned != nil { // else a bucket would not take all of it back
			<-returned
		}
		b, err := l.take(key, n, size)
		late.Stop() // there is an answer: to give back a late block takes time of its own
		if !l.arrived(key, f, n, b, err) {
			l.l.giveBack(context.Background(), key, b.Reservation)
		}
		f.end(err)
	})
	if !started {
		late.Stop()
		k.fetch = nil
		delete(l.fetching, key)
		f.end(errClosed)
	}
	return f
}

// arrived notes the answer to a fetch; false: the block is to be given back.
func (l *LeasedLimiter) arrived(key string, f *blockFetch, n int64, b *leasedBlock, err error) (used bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.fetching, key)
	if l.isClosed() {
		return err != nil || !b.Decision.Allowed || !sliding(b.Rate) && l.rest.add(key, b)
	}
	k := l.key(key, driver.Now())
	k.fetch = nil
	if err != nil {
		k.left(err)
		return true
	}
	l.rate, k.reset = b.Rate, b.got.Add(b.Decision.ResetAfter)
	switch {
	case !b.Decision.Allowed:
		k.refused(n, b)
	case sliding(b.Rate): // since the last answer it has become so
		return false
	case b.late(n):
		f.late = true
		return false
	default:
		k.blocks = append(slices.DeleteFunc(k.blocks, b.newer), b)
	}
	return true
}

// take asks for a block, and for what there is of it if there is less.
func (l *LeasedLimiter) take(key string, n, size int64) (*leasedBlock, error) {
	ctx, cancel := context.WithTimeout(l.l.s.r.life, blockLate)
	defer cancel()
	for {
		b := &leasedBlock{sent: driver.Now()}
		var err error
		b.LimitReply, err = l.l.ask(ctx, "allow", &driver.LimitRequest{Key: key, Cost: size, Wait: blockAhead, Ahead: blockAhead})
		b.got = driver.Now()
		less := max(n, b.Decision.Remaining/2)
		if err != nil || b.Decision.Allowed || less >= size {
			return b, l.ended(ctx, err)
		}
		size = less
	}
}

// ended tells the end of ctx, which is ours and not that of any caller.
func (l *LeasedLimiter) ended(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case l.l.s.r.life.Err() != nil:
		return &Error{Kind: ErrClosed, Outcome: driver.Unknown}
	}
	return errNoBlock()
}

func errNoBlock() error {
	return &Error{Kind: ErrUnavailable, Outcome: driver.Unknown, Err: fmt.Errorf("no block was had in %s", patience)}
}

// giveBack returns what is left of a block, and reports that the backend was certainly not told, because it
// was away or there was no time: to try that again gives back nothing twice. What cannot be known passes
// unused, and what is refused, or met a backend that is closed, would be so again.
func (l *LeasedLimiter) giveBack(ctx context.Context, key string, b *leasedBlock) (untold bool) {
	left := b.left(driver.Now())
	if left <= 0 {
		return false
	}
	err := l.l.correct(ctx, "give back", &driver.LimitRequest{Key: key, Op: driver.LimitReturn, Cost: left, Reservation: b.Reservation})
	return NotDone(err) && !errors.Is(err, ErrClosed) && (errors.Is(err, ErrUnavailable) || ctx.Err() != nil)
}

// putBack keeps blocks that could not be given back, to be used or given back with a later look: of a
// window they would be lost until it ends, because the backend was away for a moment.
func (l *LeasedLimiter) putBack(key string, blocks []*leasedBlock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(blocks) == 0 || l.l.s.r.life.Err() != nil {
		return
	}
	if l.isClosed() {
		l.rest.add(key, blocks...)
		return
	}
	now := driver.Now()
	k := l.keys[key]
	if k == nil {
		k = l.asked(key, now)
	}
	for _, b := range blocks {
		b.again = now.Add(blockIdle)
	}
	k.add(blocks)
}

// giveBackIdle gives back the keys that nobody has asked for since two looks.
func (l *LeasedLimiter) giveBackIdle() {
	l.mu.Lock()
	idle := l.before
	l.before, l.keys = l.keys, map[string]*leasedKey{}
	for key, k := range idle { // of a bucket the block on its way is to be given back first
		if k.fetch != nil {
			l.before[key] = k
			delete(idle, key)
		}
	}
	followAll(idle)
	if l.timer = nil; len(l.before) > 0 && !l.isClosed() {
		l.timer = time.AfterFunc(blockIdle, l.giveBackIdle)
	}
	if !l.isClosed() { // else there is nothing
		l.rest.returns.Add(1)
		defer l.rest.returns.Done()
	}
	l.mu.Unlock()
	l.giveBackAll(context.Background(), idle)
}

// followAll is follow for all blocks of keys.
func followAll(keys map[string]*leasedKey) {
	now := driver.Now()
	for _, k := range keys {
		k.follow(k.blocks, now)
	}
}

// giveBackAll gives back some keys at a time, and no longer than patience all together; what it does not
// come to is put back.
func (l *LeasedLimiter) giveBackAll(ctx context.Context, keys ...map[string]*leasedKey) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	room := make(chan struct{}, giveBackAtOnce)
	for _, some := range keys {
		for key, k := range some {
			select {
			case room <- struct{}{}:
				all.Go(func() { l.giveBackKey(ctx, key, k.blocks); <-room })
			case <-ctx.Done():
				l.putBack(key, k.blocks)
			}
		}
	}
}

// giveBackKey gives back the blocks of a key: the last one taken is the first that can be.
func (l *LeasedLimiter) giveBackKey(ctx context.Context, key string, blocks []*leasedBlock) {
	var untold []*leasedBlock
	for _, b := range slices.Backward(blocks) {
		if l.giveBack(ctx, key, b) {
			untold = append(untold, b)
		}
	}
	l.putBack(key, untold)
}
