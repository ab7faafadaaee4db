package crdt

import (
	"errors"
	"fmt"
	"time"
)

// Time is a moment of a hybrid clock: milliseconds since 1970 in the upper 48 bits
// and a count of what happened in the same one in the lower 16.
type Time uint64

// Wall is the time that the moment was near.
func (t Time) Wall() time.Time { return time.UnixMilli(int64(t >> 16)) }

// Clock makes times that grow, also while the wall clock stands still or goes back,
// and that are later than everything it has observed. The zero value is ready.
type Clock struct{ last Time }

// Next is a time that is later than all before; wall is what the wall clock says.
func (c *Clock) Next(wall time.Time) Time {
	c.last = max(c.last+1, atWall(wall))
	return c.last
}

// ErrSkew says that a time lies too far ahead of the own clock to be believed.
var ErrSkew = errors.New("the clock of the other node is ahead")

// Observe makes later times of this clock greater than t. A time that is more than
// skew ahead of wall is refused with [ErrSkew]: one node with a clock in 2099
// would win every comparison for ever. So is, whatever the skew, one in the last millisecond
// that there is, after which there may be no later time.
func (c *Clock) Observe(t Time, wall time.Time, skew time.Duration) error {
	if ahead := t.Wall().Sub(wall); ahead > skew || t >= lastMilli<<16 {
		return fmt.Errorf("crdt: a time is %s ahead of the own clock, more than %s: %w", ahead, skew, ErrSkew)
	}
	c.last = max(c.last, t)
	return nil
}

// lastMilli is the last millisecond of a Time, in the year 10889. No clock gets there by itself.
const lastMilli = 1<<48 - 1

func atWall(wall time.Time) Time {
	ms := wall.UnixMilli()
	if ms < 0 {
		return 0
	}
	return Time(min(uint64(ms), lastMilli-1) << 16)
}
