package edge

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

// ErrFull says that a limiter has as many keys as it may have, of which idle ones are
// forgotten after two windows; that a node has as many sets and registers as it may
// have; that a set would be too large; or that a forged message has used up the numbers of
// a node's additions to it.
var ErrFull = errors.New("full")

// minSpan is the least time that a bucket's counts are told for: what comes later
// than that is not counted any more.
const minSpan = time.Minute

// maxDebtWindows is how many windows a debt can take; sums of so many stay far from
// overflow.
const maxDebtWindows = 16

// LimiterConfig is how a [Limiter] decides. Nodes that share a limiter need the same
// Per and Algorithm; counts of others are ignored.
type LimiterConfig struct {
	// Rate is what all nodes together admit for each key: a [limit.GCRA] or
	// [limit.TokenBucket], which has a burst and stays nearest to the rate in the
	// long run, a [limit.FixedWindow] or a [limit.SlidingWindow]; of at least a
	// millisecond, without Initial.
	Rate limit.Rate
	// LocalCap is what this node admits at most for each key and window, whatever
	// the others say; 0: as much as all together. While nodes cannot hear each other
	// they admit at most the sum of their caps. Below a fair share it refuses what
	// others leave unused; three times the fair share is a good start. Of a bucket the
	// window is a sliding one of Rate.Per, and if that is below a minute, of a minute with
	// as much more: a node can admit up to Burst at once, whatever the cap.
	LocalCap int64
	// MaxDebt is what a key that was admitted too much owes at most, up to 16 times
	// Rate.Count; 0: 16 times of a bucket, once of a fixed window; negative: nothing.
	// A sliding window has none: it counts the window before by itself.
	MaxDebt int64
	// MaxKeys bounds the keys that are remembered; 0: 1,000,000.
	MaxKeys int
}

// Limiter decides how often something may happen on all nodes together, by key.
type Limiter struct {
	node    *Node
	name    string
	config  LimiterConfig
	rule    rule
	maxKeys int64
	id      int // in the order of the node's limiters
	opened  int64
	keys    atomic.Int64
	next    atomic.Uint32 // the shard where makeRoom looks
	looked  int           // shards that unmarkPast has looked through; the loop's own
	tally   limiterTally
	shards  [64]shard

	watchers watchers
}

// shard has a part of the keys.
type shard struct {
	mu     sync.Mutex
	index  index
	all    []*entry
	dirty  []*entry
	cursor int // where the next sweep begins
	epoch  int64
	sum    int64 // what is known to be taken in the window epoch
}

// count adds to what is known to be taken in a window. As with entries, a sum of a clock that was
// wrong begins anew, and a caller that comes late changes nothing of the present one.
func (l *Limiter) count(s *shard, epoch, n int64) {
	if epoch > s.epoch || epoch < s.epoch-1 && l.astray(s.epoch) {
		s.epoch, s.sum = epoch, 0
	}
	if epoch == s.epoch {
		s.sum += n
	}
}

// Limiter is the limiter of that name. Opening it again is an error if the settings
// differ.
func (n *Node) Limiter(name string, c LimiterConfig) (*Limiter, error) {
	if err := c.check(name); err != nil {
		return nil, err
	}
	l, missed, err := n.openLimiter(name, c)
	if missed && n.keeper != nil { // a link that keeps nothing may carry what others keep; the next message asks them
		n.keeper.Replay()
	}
	return l, err
}

// openLimiter reports also that kept counts of the limiter came before it was open.
func (n *Node) openLimiter(name string, c LimiterConfig) (l *Limiter, missed bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.limiters[name]; l != nil {
		if l.config != c {
			return nil, false, invalid("limiter %q is open with other settings", name)
		}
		return l, false, nil
	}
	l = newLimiter(n, name, c)
	l.id, l.opened = len(n.limited), n.config.Now().UnixNano()
	n.limiters[name] = l
	n.limited = append(n.limited, l)
	n.ask.Store(true)
	return l, n.unopened.take(name), nil
}

func (c *LimiterConfig) check(name string) error {
	if err := checkName("name of a limiter", name); err != nil {
		return err
	}
	if err := c.Rate.Check(); err != nil {
		return fmt.Errorf("edge: limiter %q: %w", name, err)
	}
	sliding := c.Rate.Algorithm == limit.SlidingWindow
	switch {
	case c.Rate.Algorithm == limit.CalendarWindow || c.Rate.Algorithm == limit.SlidingLog:
		return invalid("limiter %q: %s counts cannot be shared here; use a bucket, a fixed or a sliding window", name, c.Rate.Algorithm)
	case c.Rate.Initial != 0:
		return invalid("limiter %q: Initial %d: a key that was never used has all of its burst here", name, c.Rate.Initial)
	case c.Rate.Per < time.Millisecond:
		return invalid("limiter %q: a window of %s is too short; it needs %s", name, c.Rate.Per, time.Millisecond)
	case c.LocalCap < 0 || c.LocalCap > c.Rate.Count:
		return invalid("limiter %q: the local cap %d is out of range: 1 to the count %d, or 0 for none", name, c.LocalCap, c.Rate.Count)
	case sliding && c.MaxDebt > 0 || c.MaxDebt > maxDebtWindows*c.Rate.Count:
		return invalid("limiter %q: the debt %d is out of range: at most %d times the count, of a sliding window none", name, c.MaxDebt, maxDebtWindows)
	case c.MaxKeys < 0:
		return invalid("limiter %q: MaxKeys %d is negative", name, c.MaxKeys)
	}
	return nil
}

func newLimiter(n *Node, name string, c LimiterConfig) *Limiter {
	l := &Limiter{node: n, name: name, config: c, rule: newRule(&c), maxKeys: int64(c.MaxKeys)}
	setDefault(&l.maxKeys, 1_000_000)
	return l
}

func newRule(c *LimiterConfig) rule {
	r := rule{rate: c.Rate, cap: c.Rate, maxDebt: max(c.MaxDebt, 0), span: int64(c.Rate.Per)}
	r.cap.Count = c.LocalCap
	switch {
	case c.MaxDebt == 0 && r.bucket():
		r.maxDebt = maxDebtWindows * c.Rate.Count
	case c.MaxDebt == 0 && c.Rate.Algorithm == limit.FixedWindow:
		r.maxDebt = c.Rate.Count
	}
	if r.bucket() {
		r.most, r.maxDebt = min(r.full()+r.fill(r.maxDebt), maxFill), 0
		r.span = max(r.span, int64(minSpan))
		r.cap = limit.Rate{Algorithm: limit.SlidingWindow, Per: time.Duration(r.span), Count: scaled(c.LocalCap, r.span, int64(c.Rate.Per)), Name: c.Rate.Name}
	}
	return r
}

// scaled is n·by/of, at most limit.MaxCount.
func scaled(n, by, of int64) int64 {
	high, low := bits.Mul64(uint64(n), uint64(by))
	if high >= uint64(of) {
		return limit.MaxCount
	}
	q, _ := bits.Div64(high, low, uint64(of))
	return int64(min(q, limit.MaxCount))
}

// Allow is Take of 1 by the node's clock: a Limiter can stand where one of package
// holdfast does. It does not wait, so ctx is not looked at.
func (l *Limiter) Allow(ctx context.Context, key string) (limit.Decision, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN is Take by the node's clock.
func (l *Limiter) AllowN(_ context.Context, key string, n int64) (limit.Decision, error) {
	return l.Take(key, l.node.config.Now(), n)
}

// shard is where the key belongs, the same in every run.
func (l *Limiter) shard(key string) *shard {
	h := uint64(len(key))
	for ; len(key) >= 8; key = key[8:] {
		h = mix(h ^ word(key))
	}
	for i := 0; i < len(key); i++ {
		h = h<<8 ^ h>>56 ^ uint64(key[i])
	}
	return &l.shards[mix(h)%uint64(len(l.shards))]
}

// mix spreads each bit over those below and above it.
func mix(h uint64) uint64 {
	high, low := bits.Mul64(h, 0x9e3779b97f4a7c15)
	return high ^ low
}

// word is the first eight bytes, which the compiler loads at once.
func word(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// Take decides whether cost may be taken from key at now, and takes it if so. A cost
// of 0 only looks; one that no wait makes possible is refused with [limit.Never]. An
// error says that nothing was decided: the key, which may be "", is too long, or there are too many, or now is not of
// the years 1970 to 2261.
func (l *Limiter) Take(key string, now time.Time, cost int64) (d limit.Decision, err error) {
	if err := checkUse(key, now); err != nil {
		return d, err
	}
	at := now.UnixNano()
	epoch := l.rule.epoch(at)
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(key)
	if e == nil {
		return l.takeFirst(s, key, epoch, at, cost)
	}
	epoch, at = l.present(e, epoch, at)
	e.roll(&l.rule, epoch)
	e.decide(&l.rule, at, cost, &d)
	if d.Allowed && cost > 0 {
		l.commit(s, e, at, cost)
	}
	l.note(key, &d)
	return d, nil
}

// commit takes what was allowed.
func (l *Limiter) commit(s *shard, e *entry, at, cost int64) {
	e.take(&l.rule, at, cost)
	l.count(s, e.epoch, cost)
	if !l.node.told.Load() {
		s.mark(e)
	}
	if cost > 0 {
		l.watchers.tell()
	}
}

// takeFirst decides about a key that is not known, and remembers it only if
// something was taken.
func (l *Limiter) takeFirst(s *shard, key string, epoch, at, cost int64) (limit.Decision, error) {
	fresh := entry{epoch: epoch}
	var d limit.Decision
	fresh.decide(&l.rule, at, cost, &d)
	if !d.Allowed || cost == 0 {
		l.note(key, &d)
		return d, nil
	}
	e := l.add(s, key, epoch)
	if e == nil {
		return limit.Decision{}, l.full()
	}
	l.commit(s, e, at, cost)
	l.note(key, &d)
	return d, nil
}

// Charge takes cost without asking, for work with a cost that was not known before. The
// key may owe afterwards.
func (l *Limiter) Charge(key string, now time.Time, cost int64) error {
	if err := checkUse(key, now); err != nil {
		return err
	}
	if cost < 0 || cost > limit.MaxCount {
		return invalid("limiter %q: the cost %d is out of range: 0 to %d", l.name, cost, int64(limit.MaxCount))
	}
	at := now.UnixNano()
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(key)
	if e == nil {
		e = l.add(s, key, l.rule.epoch(at))
	}
	if e == nil {
		return l.full()
	}
	epoch, at := l.present(e, l.rule.epoch(at), at)
	e.roll(&l.rule, epoch)
	l.commit(s, e, at, cost)
	return nil
}

// present is the window, and the time, at which a caller is decided. One that comes late,
// after a long job or a pause of its program, counts in the entry's window. An entry that is
// ahead of the node's own clock comes from one that was wrong, and does not count.
func (l *Limiter) present(e *entry, epoch, at int64) (window, now int64) {
	if epoch < e.epoch-1 && !l.astray(e.epoch) {
		return e.epoch, max(at, e.epoch*l.rule.span)
	}
	return epoch, at
}

// astray reports that a window is ahead of the node's own clock by more than one.
func (l *Limiter) astray(epoch int64) bool {
	return epoch > l.rule.epoch(l.node.config.Now().UnixNano())+1
}

func (l *Limiter) full() error {
	return fmt.Errorf("edge: limiter %q: it has %d keys, the most it may have; raise MaxKeys: %w", l.name, l.maxKeys, ErrFull)
}

// add remembers a key, or is nil if there is no room. Where all room is used some idle
// keys are forgotten first: after Close nobody else does.
func (l *Limiter) add(s *shard, key string, epoch int64) *entry {
	if l.keys.Load() >= l.maxKeys {
		l.makeRoom(s)
	}
	if l.keys.Add(1) > l.maxKeys || len(s.all) == maxShard {
		l.keys.Add(-1)
		l.node.tally.full.Add(1)
		return nil
	}
	e := &entry{key: key, epoch: epoch}
	s.put(e)
	return e
}

// makeRoom looks for idle keys, a few in each of a few shards; s is locked.
func (l *Limiter) makeRoom(s *shard) {
	epoch := l.rule.epoch(l.node.config.Now().UnixNano())
	l.forget(s, epoch, few)
	for n := 0; n < few && l.keys.Load() >= l.maxKeys; n++ {
		if o := &l.shards[l.next.Add(1)%uint32(len(l.shards))]; o != s && o.mu.TryLock() {
			l.forget(o, epoch, few)
			o.mu.Unlock()
		}
	}
}

// mark has the next flush send the entry.
func (s *shard) mark(e *entry) {
	if !e.dirty {
		e.dirty = true
		s.dirty = append(s.dirty, e)
	}
}

// Count is what all nodes have taken from the key in the window of now, as far as it
// is known here. Of a bucket a window is Rate.Per, or a minute if that is longer.
func (l *Limiter) Count(key string, now time.Time) int64 {
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(key)
	if e == nil {
		return 0
	}
	return e.count(l.rule.epoch(now.UnixNano()))
}

func (e *entry) count(epoch int64) int64 {
	switch e.epoch - epoch {
	case 0:
		return e.sum().now
	case 1:
		return e.sum().before
	}
	return 0
}

// AllCounts are the counts of all keys that were used in the window of now.
func (l *Limiter) AllCounts(now time.Time) map[string]int64 {
	epoch := l.rule.epoch(now.UnixNano())
	all := map[string]int64{}
	for i := range l.shards {
		l.shards[i].each(func(e *entry) {
			if n := e.count(epoch); n > 0 {
				all[e.key] = n
			}
		}, func() {})
	}
	return all
}

// few is how many shards, and entries of each, are looked at if there is no room.
const few = 16

// chunk is how many entries are looked at under one lock, so that no decision waits
// for all of them.
const chunk = 256

// each visits all entries, a chunk at a time, and calls between without the lock
// after each chunk. An entry that is moved by a removal meanwhile may be left out.
func (s *shard) each(visit func(*entry), between func()) {
	for i := 0; ; i += chunk {
		s.mu.Lock()
		part := s.all[min(i, len(s.all)):min(i+chunk, len(s.all))]
		for _, e := range part {
			visit(e)
		}
		s.mu.Unlock()
		between()
		if len(part) < chunk {
			return
		}
	}
}

// Keys is how many keys are remembered.
func (l *Limiter) Keys() int { return int(l.keys.Load()) }

// merge joins what another node knows of a key. v is for a whole that can relieve, or for one
// in several sections, which does not; nil: it is neither.
func (l *Limiter) merge(w *window, now int64, v *view) {
	epoch := l.rule.epoch(now)
	switch {
	case w.per != int64(l.rule.rate.Per) || w.algorithm != l.rule.rate.Algorithm:
		l.node.tally.mismatched.Add(1)
		return
	case w.epoch > epoch+1:
		l.node.tally.skewed.Add(1)
		return
	case w.epoch < epoch-1:
		return
	}
	s := l.shard(w.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(w.key)
	if e == nil {
		e = l.add(s, w.key, w.epoch)
	}
	if e == nil {
		return
	}
	if l.learn(s, e, w, now); v != nil {
		v.judge(&e.relief, w.whole && e.told(w, v))
	}
}

// began is when the limiter was opened, as long as it has to learn what was taken before: 0
// once all of both windows could be heard here, or the sender has told all that it knows.
func (l *Limiter) began(e *entry, w *window) int64 {
	if l.opened <= (e.epoch-1)*l.rule.span || l.opened <= w.told {
		return 0
	}
	return l.opened
}

// learn merges, and counts what others have admitted above the rate.
func (l *Limiter) learn(s *shard, e *entry, w *window, now int64) {
	if w.epoch > e.epoch {
		e.roll(&l.rule, w.epoch)
	}
	known, debt, over := e.sum(), e.debt, e.over(&l.rule, now)
	late, full := e.merge(&l.rule, w, l.node.self, now, l.began(e, w))
	if l.node.tally.full.Add(full); late {
		e.catchUp(&l.rule, now)
	}
	sum := e.sum()
	l.count(s, e.epoch, sum.now-known.now)
	if sum != known || e.debt != debt {
		l.watchers.tell()
	}
	if more := e.over(&l.rule, now) - over; more > 0 {
		l.tally.over.Add(uint64(more))
	}
}

// sweep forgets idle keys, some of each shard at a time.
func (l *Limiter) sweep(now int64) {
	epoch := l.rule.epoch(now)
	for i := range l.shards {
		l.sweepShard(&l.shards[i], epoch)
	}
}

func (l *Limiter) sweepShard(s *shard, epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.forget(s, epoch, 4*chunk)
}

// forget looks at so many keys of a shard, which is locked, and forgets those that are
// idle.
func (l *Limiter) forget(s *shard, epoch int64, most int) {
	for n := min(most, len(s.all)); n > 0 && len(s.all) > 0; n-- {
		s.cursor %= len(s.all)
		if e := s.all[s.cursor]; e.idle(&l.rule, epoch) {
			l.remove(s, e)
		} else {
			s.cursor++
		}
	}
}

// remove forgets an entry. What it counts is learned again if its window is the present one after all, when a clock that was
// ahead is set back.
func (l *Limiter) remove(s *shard, e *entry) {
	if e.epoch == s.epoch {
		s.sum = max(s.sum-e.sum().now, 0)
	}
	s.drop(e)
	l.keys.Add(-1)
	l.node.tally.evicted.Add(1)
}

// addDirty adds this node's counts of the keys that have changed.
func (l *Limiter) addDirty(b *batch) {
	epoch := l.rule.epoch(l.node.config.Now().UnixNano())
	for i := range l.shards {
		l.shards[i].eachDirty(epoch, func(e *entry) {
			e.dirty = false
			b.addWindow(l, e, false)
		}, b.send)
	}
}

// unmarkPast looks through the marks of the next shard: one at a time, since it is done with
// every flush that finds the link refusing.
func (l *Limiter) unmarkPast() {
	s := &l.shards[l.looked%len(l.shards)]
	l.looked++
	epoch := l.rule.epoch(l.node.config.Now().UnixNano())
	s.eachDirty(epoch, func(e *entry) { s.dirty = append(s.dirty, e) }, func() {})
}

// eachDirty takes the marked entries, a chunk under one lock, and calls between without it.
// One of the past loses its mark, and with it what kept it from being forgotten.
func (s *shard) eachDirty(epoch int64, visit func(*entry), between func()) {
	s.mu.Lock()
	list := s.dirty
	s.dirty = nil
	s.mu.Unlock()
	for part := list; len(part) > 0; part = part[min(chunk, len(part)):] {
		s.mu.Lock()
		for _, e := range part[:min(chunk, len(part))] {
			if e.dirty = !e.past(epoch); e.dirty {
				visit(e)
			}
		}
		s.mu.Unlock()
		between()
	}
}

// addState adds all that is known of all keys.
func (l *Limiter) addState(b *batch) {
	for i := range l.shards {
		l.shards[i].each(func(e *entry) { b.addWindow(l, e, true) }, b.between)
	}
}

// unmark forgets what was to be sent: nobody sends any more.
func (l *Limiter) unmark() {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, e := range s.dirty {
			e.dirty = false
		}
		s.dirty = nil
		s.mu.Unlock()
	}
}

// markAgain has a key sent that could not be.
func (l *Limiter) markAgain(key string) {
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(key); e != nil {
		s.mark(e)
	}
}
