package limit

import "time"

// Never is the RetryAfter of a cost that no wait makes possible.
const Never time.Duration = -1

// Decision answers one question of one key.
type Decision struct {
	Allowed bool
	// Asked is the cost that was asked for.
	Asked int64
	// Remaining is what could be taken right after the decision; 0 while a key is
	// in debt.
	Remaining int64
	// Limit is the most that the key can have: [Rate.Limit].
	Limit int64
	// RetryAfter is how long to wait until the cost could be taken if nothing else
	// is, also while the clock is set back (of a [CalendarWindow] from the begin of the window that the key
	// is in); 0 if it was allowed, [Never] if it is above Limit, or if a bucket would be full again only
	// after the last time that there is, in 2262. Of a cost that was
	// allowed by [Ask.Wait] it is how long the caller has to wait before it goes on. Of a look at a key
	// that was never used, at a rate with an Initial, it counts from the first time that the key is
	// asked (see Rate.Initial): until then every look tells the same.
	RetryAfter time.Duration
	// ResetAfter is how long until the key is as if it had never been used, counted as RetryAfter is.
	ResetAfter time.Duration
	// Policy is the Name of the rate that decided.
	Policy string
}

// Reservation is what [Settle] and [Cancel] need to know of what was taken.
type Reservation struct {
	// Cost is what was taken.
	Cost int64
	// At is when, and Until when its trace would have gone by itself; both are
	// times of the caller's clock in nanoseconds.
	At, Until int64
	// Given is State.Given when it was made.
	Given int64
	// Epoch is for engines, to tell at which of a limiter's rates it was made; no
	// function of this package looks at it.
	Epoch uint64
}

// Ask is a question of [Decide].
type Ask struct {
	// Cost is what is asked for.
	Cost int64
	// Wait lets a cost pass that is there only later, at most so much later, and
	// takes it now: whatever is asked for afterwards comes after it. Only of
	// buckets; others decide as if it were 0.
	Wait time.Duration
	// Ahead takes the cost as if the bucket needed at least so long to be full
	// again, as far as the burst allows, so that [Reservation.Until] is that much
	// later: for a caller that takes more than it uses at once. Only of buckets.
	Ahead time.Duration
}
