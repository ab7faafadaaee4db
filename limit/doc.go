// Package limit decides how often something may happen: a request, a login, a
// call to a paid service.
//
// A [Rate] says how much is allowed, a [State] what was used by one key, and
// [Take] decides about one more:
//
//	state, d := limit.Take(rate, state, now, 1)
//	if !d.Allowed {
//		return tooMany(d.RetryAfter)
//	}
//
// The package is pure: it has no clock, no lock and no table of keys. Time is
// an argument, in nanoseconds of whatever clock the caller trusts and not negative, so that the
// same code decides in a replicated log, in a script's stead, and in a test.
// All arithmetic is in integers and exact: a rate of one an hour works, and so
// does one of a billion a second.
//
// # Algorithms
//
//   - [GCRA], the default, is a bucket of Burst that fills evenly. At most
//     Burst + Count·t/Per are admitted in any time t.
//   - [TokenBucket] is the same bucket under the name that others use.
//   - [FixedWindow] counts in windows that begin at multiples of Per; up to twice
//     Count can pass around the boundary of two windows.
//   - [CalendarWindow] counts by hour, day, month or year, for quotas and bills.
//   - [SlidingWindow] keeps two counts and assumes that the older one was spread
//     evenly. Once traffic has lasted for two windows, at most Count pass in any time Per if it is
//     steady, and about Count + 2·√Count at most if it is random: 1.06·Count of 1,000, 1.2·Count of 100.
//     Traffic made to deceive it, and the first rush after a pause, stay below 2·Count.
//   - [SlidingLog] remembers each admission and is exact: at most Count in any time
//     Per. It takes 16 bytes an admission, so Count is bounded.
//
// A clock that goes back never makes more room: each algorithm goes on from the
// latest time at which something was taken. Only a [CalendarWindow] begins anew if
// the clock went back past the window before that of its latest use: it would be closed for
// years by one wrong date. So what is taken before and after, in one period, can be
// twice Count. A [Reservation] is settled by the clock that it was made by.
package limit
