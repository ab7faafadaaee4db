// Package deadline tells a client how long it may believe in something that a
// server promised until a point of cluster time.
//
// The server counts cluster time, the client its own elapsed time; their rates
// differ by at most [Rho] in either direction and their offsets mean nothing.
// [Map] turns a deadline of the one into a deadline of the other that is never
// late: a holder that stops at it has stopped before the server can act on its own.
package deadline

import (
	"math"
	"time"
)

// Rho is the bound on the rate error of any elapsed-time clock, in percent. A
// clock that is worse breaks "lost before re-granted"; only fencing helps then.
const Rho = 1

// MinMargin is the least that [Map] takes off for the client's own slowness in
// noticing that its time is over.
const MinMargin = 50 * time.Millisecond

// Margin is what [Map] takes off for a session of the given TTL: one percent,
// and at least [MinMargin].
func Margin(ttl time.Duration) time.Duration {
	return max(MinMargin, ttl/100)
}

// Map returns the client's deadline for x, a point of cluster time.
//
// sent is the client's clock when the attempt that was answered was handed to
// the transport, and n the cluster time at which the answer was applied. Only
// such a pair anchors: a read, a refusal or a push tells nothing about when the
// server's clock stood where. All values are nanoseconds; a result beyond the
// range of int64 is the end of the range.
func Map(sent, n, x int64, ttl time.Duration) int64 {
	return plus(plus(sent, shrink(minus(x, n))), -int64(Margin(ttl)))
}

// shrink scales a span of cluster time to what a client with the slowest clock
// allowed may count while the server has the fastest: d·(1−ρ)/(1+ρ). The
// quotient is taken first so that a span of centuries does not overflow; the
// rounding is towards an earlier deadline.
func shrink(d int64) int64 {
	const slow, fast = 100 - Rho, 100 + Rho
	q, r := d/fast, d%fast
	return q*slow + r*slow/fast
}

// plus adds, stopping at the ends of the range: a wrapped sum would turn the
// latest deadline into the earliest.
func plus(a, b int64) int64 {
	sum := a + b
	if (sum < a) == (b < 0) {
		return sum
	}
	if b < 0 {
		return math.MinInt64
	}
	return math.MaxInt64
}

func minus(a, b int64) int64 {
	if b == math.MinInt64 {
		return plus(plus(a, math.MaxInt64), 1)
	}
	return plus(a, -b)
}
