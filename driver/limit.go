package driver

import (
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

// LimitOp is what to do to a limiter.
type LimitOp uint8

// The operations. Take and Peek answer with a decision; the others change what
// later decisions are made by.
const (
	LimitTake    LimitOp = iota // take Cost if it is allowed; 0: only look
	LimitPeek                   // decide as LimitTake would, and take nothing
	LimitSettle                 // make what Reservation took cost Cost
	LimitReturn                 // give back Cost of the block Reservation, which was taken Ahead
	LimitReset                  // make the key as if it had never been used
	LimitSetRate                // set the rate, new limiter or not; every key begins anew
)

// LimitRequest asks a limiter. Its keys are apart from each other, and as many as
// there are callers: an engine forgets one that is as if it had never been used.
type LimitRequest struct {
	// ID is another for each request: a driver that sends one more than once to its
	// engine knows it by that. The library repeats none.
	ID [16]byte
	// Name is the limiter, Key what it is asked about; Key may be empty.
	Name, Key string
	Op        LimitOp
	// Rate is the limiter's; of a new one the first request sets it, unless it is a
	// LimitPeek, which makes nothing. One that differs, by [limit.Rate.Equal], is
	// ErrConflict. With a Count of 0 it is not said, and a limiter that does not exist is
	// ErrNotFound. LimitSettle and LimitReturn come without it.
	Rate limit.Rate
	Cost int64
	// Wait and Ahead are those of [limit.Ask].
	Wait, Ahead time.Duration
	Reservation limit.Reservation
	_           struct{}
}

// LimitReply answers it.
type LimitReply struct {
	Decision limit.Decision
	// Reservation is what was taken.
	Reservation limit.Reservation
	// Rate is the limiter's.
	Rate limit.Rate
	// Now is when it was decided, in nanoseconds of the engine's clock: times of
	// Reservation are of that clock.
	Now int64
}
