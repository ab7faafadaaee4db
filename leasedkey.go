package holdfast

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// What a program has of the keys of a limiter by blocks, and what it decides by that: no I/O and no clock.

// leasedKey is what the program has of one key. Guarded by the limiter's lock.
type leasedKey struct {
	blocks []*leasedBlock // oldest first
	fetch  *blockFetch    // under way; nil: there is none
	denied time.Time      // until when the backend is not asked for deniedCost or more beside the blocks
	retry  time.Time      // when deniedCost can be taken, by the backend's last refusal
	reset  time.Time      // when the key is as if it had never been used, by the last answer
	demand demand
	last   bucketEnd // what the blocks that were given back left
	// returned is closed when those are; nil: there were none.
	returned <-chan struct{}

	deniedCost int64
}

// refuses: a cost that lacks n beside the blocks is refused without asking.
func (k *leasedKey) refuses(n int64, now time.Time) bool {
	return now.Before(k.denied) && n >= k.deniedCost
}

// retryAfter is how long it takes until the backend has n: more than it has refused comes later.
func (k *leasedKey) retryAfter(n int64, rate limit.Rate, now time.Time) time.Duration {
	wait := max(k.retry.Sub(now), 1)
	if fills(rate) {
		more, _ := rate.Fill(n - k.deniedCost)
		wait += time.Duration(more)
	}
	return wait
}

// refused notes that the backend has refused n beside the blocks. It is asked again when a block
// that is taken ahead can be there.
func (k *leasedKey) refused(n int64, b *leasedBlock) {
	wait := b.Decision.RetryAfter
	k.deniedCost, k.retry = n, b.got.Add(wait)
	if wait > blockAhead {
		wait = min(max(wait-blockAhead, blockAhead), blockAgain)
	}
	k.denied = b.got.Add(wait)
}

// leasedBlock is what was taken at once. The backend's clock was at Now when it was,
// between the program's sent and got.
type leasedBlock struct {
	driver.LimitReply
	sent, got time.Time
	used      int64     // or gone
	again     time.Time // before that the backend is not asked to take it back: it was away
}

// left is what can be used at now. So much time has passed at most at the backend as
// has here since the request was sent, if clocks differ by no more than a hundredth.
func (b *leasedBlock) left(now time.Time) int64 {
	b.used = max(b.used, b.Reservation.Cost-b.usable(now))
	return b.Reservation.Cost - b.used
}

// usable is what could be used at now if nothing had been.
func (b *leasedBlock) usable(now time.Time) int64 {
	passed := now.Sub(b.sent)
	return limit.Usable(b.Rate, b.Reservation, b.Now+int64(passed+passed/100))
}

// late: when the block has come and begun, a cost of n cannot be had of it any more.
func (b *leasedBlock) late(n int64) bool { return b.usable(b.got.Add(b.begins(b.got))) < n }

// begins is how long it takes here until the block may be used.
func (b *leasedBlock) begins(now time.Time) time.Duration {
	passed := now.Sub(b.got)
	left := b.Decision.RetryAfter - (passed - passed/100)
	if left <= 0 {
		return 0
	}
	return left + left/99 + 1
}

// demand is how much is asked for in the time of a block.
type demand struct {
	since     time.Time
	sum, last int64
	// The most of it in the present second, and in the one before.
	second       time.Time
	most, before int64
}

func (d *demand) add(n int64, now time.Time) {
	if passed := now.Sub(d.since); passed >= blockAhead {
		d.last = int64(float64(d.sum) * (float64(blockAhead) / float64(passed)))
		d.since, d.sum = now, 0
	}
	d.sum += n
	if passed := now.Sub(d.second); passed >= blockIdle {
		if d.before = d.most; passed >= 2*blockIdle {
			d.before = 0
		}
		d.second, d.most = now, 0
	}
	d.most = max(d.most, d.sum)
}

// drop takes out a cost of n, which was added and is refused: it uses nothing, and is to keep nothing from others.
func (d *demand) drop(n int64) {
	d.sum = max(d.sum-n, 0)
	d.most = max(d.most-n, d.sum)
}

// rare: the cost of n that is asked for now is all that was for a while. To fetch ahead
// would cost more calls than it spares.
func (d *demand) rare(n int64) bool { return d.last == 0 && d.sum <= n }

// refusal is how long a cost has to wait that lacks so much beside the blocks, or has enough of them when they begin; 0: the
// backend is to be asked.
func (k *leasedKey) refusal(lacks int64, begins time.Duration, rate limit.Rate, now time.Time) time.Duration {
	switch {
	case lacks <= 0:
		return begins
	case k.refuses(lacks, now):
		return k.retryAfter(lacks, rate, now)
	}
	return 0
}

// count adds a cost to the demand, unless it is refused for so long that no block is taken or kept for it.
func (k *leasedKey) count(c *leasedCall, retryAfter time.Duration, now time.Time) {
	switch counts := retryAfter <= blockAhead; {
	case counts && !c.counted:
		k.demand.add(c.cost, now)
	case !counts && c.counted:
		k.demand.drop(c.cost)
	}
	c.counted = true
}

// use takes n from the blocks that have begun, of the oldest first, and tells what is left in
// all, of blocks that have yet to begin too.
func (k *leasedKey) use(n int64, now time.Time, d *limit.Decision) (left int64) {
	k.blocks = slices.DeleteFunc(k.blocks, func(b *leasedBlock) bool { return b.left(now) <= 0 })
	for _, b := range k.blocks {
		left += b.left(now)
	}
	d.Remaining = k.ready(now, 0, 0)
	if d.Allowed = d.Remaining >= n; d.Allowed {
		left -= n
		d.Remaining -= n
		k.spend(n, now)
	}
	return left
}

// ready is what can be used, a while from now, of the blocks that have begun by then or before.
func (k *leasedKey) ready(now time.Time, begun, while time.Duration) (sum int64) {
	for _, b := range k.blocks {
		if b.begins(now) <= begun {
			sum += max(min(b.Reservation.Cost-b.used, b.usable(now.Add(while))), 0)
		}
	}
	return sum
}

// together is in how long the blocks have n, for a caller that comes a little late; false: what is in hand has passed
// before the others begin.
func (k *leasedKey) together(n int64, now time.Time) (time.Duration, bool) {
	for _, b := range k.blocks {
		if later := b.begins(now); k.ready(now, later, later+blockAhead/2) >= n {
			return later, true
		}
	}
	return 0, false
}

// spend takes n, which is there.
func (k *leasedKey) spend(n int64, now time.Time) {
	for _, b := range k.blocks {
		if b.begins(now) == 0 {
			part := min(n, b.Reservation.Cost-b.used)
			b.used += part
			n -= part
		}
	}
}

// follow notes that the backend gets back blocks, the last one first, and can refuse so much less.
func (k *leasedKey) follow(off []*leasedBlock, now time.Time) {
	for _, b := range slices.Backward(off) {
		if fills(b.Rate) {
			k.last.follow(&b.Rate, &b.Reservation, b.left(now))
		}
		k.deniedCost += b.left(now)
	}
}

// size is that of the next block.
func (k *leasedKey) size(n int64, rate limit.Rate) int64 {
	return max(n, min(max(k.demand.last, k.demand.sum), rate.Limit()/blockPart(rate)))
}

// left drops all blocks if the limiter has another rate, or is no more.
func (k *leasedKey) left(err error) {
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
		k.blocks = nil
	}
}

// newer: since o was taken the rate was set, the limiter deleted and made anew, or the key of a window reset. The key
// has begun anew, and what o has left would come on top. Of a bucket a reset is not told, and
// a block passes soon.
func (b *leasedBlock) newer(o *leasedBlock) bool {
	was, is := o.Reservation, b.Reservation
	window := b.Rate.Algorithm == limit.FixedWindow || b.Rate.Algorithm == limit.CalendarWindow
	return was.Epoch != is.Epoch || window && was.Given != is.Given
}
