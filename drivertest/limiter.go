package drivertest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

var (
	limiting        = []driver.Feature{driver.FeatureLimit}
	limitingWatched = []driver.Feature{driver.FeatureLimit, driver.FeatureWatch}
)

var limiterCases = []Case{
	{Name: "Limiter/Burst", Needs: limiting, Run: run(limiterBurst),
		Promise: "A new key is allowed its burst at once, and then told when the next is allowed."},
	{Name: "Limiter/Refills", Needs: limiting, Run: run(limiterRefills),
		Promise: "After the time that a refusal tells the cost is allowed."},
	{Name: "Limiter/KeysAreApart", Needs: limiting, Run: run(limiterKeysAreApart),
		Promise: "What one key takes is not taken from another, whatever their texts."},
	{Name: "Limiter/OverClients", Needs: limiting, Run: run(limiterOverClients),
		Promise: "What one client takes is taken for all."},
	{Name: "Limiter/CountsExactly", Needs: limiting, Run: run(limiterCountsExactly),
		Promise: "Of many goroutines and clients that ask at once exactly as many are allowed as the burst, or the count of a window, says."},
	{Name: "Limiter/CostsAreWhole", Needs: limiting, Run: run(limiterCostsAreWhole),
		Promise: "A cost is taken whole or not at all, and one above the burst can never be taken."},
	{Name: "Limiter/PeekTakesNothing", Needs: limiting, Run: run(limiterPeek),
		Promise: "Peek and Available tell what could be taken, and take nothing."},
	{Name: "Limiter/CancelGivesBack", Needs: limiting, Run: run(limiterCancel),
		Promise: "Cancel gives back what was reserved, and Settle what was too much."},
	{Name: "Limiter/Debt", Needs: limiting, Run: run(limiterDebt),
		Promise: "Settle with more than was reserved takes it in any case, and the key waits for it."},
	{Name: "Limiter/RateDiffers", Needs: limiting, Run: run(limiterRateDiffers),
		Promise: "Using a limiter with another rate is ErrConflict and takes nothing."},
	{Name: "Limiter/RateOfItsOwn", Needs: limiting, Run: run(limiterRateOfItsOwn),
		Promise: "Without a rate a limiter uses the one that it has, and one that does not exist is ErrNotFound."},
	{Name: "Limiter/SetRate", Needs: limiting, Run: run(limiterSetRate),
		Promise: "SetRate sets the rate for everybody, and every key begins anew."},
	{Name: "Limiter/Reset", Needs: limiting, Run: run(limiterReset),
		Promise: "Reset makes one key as if it had never been used, and no other."},
	{Name: "Limiter/ResetForgets", Needs: limiting, Run: run(limiterResetForgets),
		Promise: "What was reserved before a Reset gives nothing back after it, which others have used since."},
	{Name: "Limiter/SetRateForgets", Needs: limiting, Run: run(limiterSetRateForgets),
		Promise: "What was reserved before SetRate, or a limiter that was deleted, gives nothing back after it, also if the rate is the same."},
	{Name: "Limiter/Delete", Needs: limiting, Run: run(limiterDelete),
		Promise: "A deleted limiter has no rate and no keys any more."},
	{Name: "Limiter/StaysDeleted", Needs: limiting, Run: run(limiterStaysDeleted),
		Promise: "Neither a look, nor what was taken from a limiter before it was deleted, makes it again."},
	{Name: "Limiter/Algorithms", Needs: limiting, Run: run(limiterAlgorithms),
		Promise: "Every algorithm allows its count and then tells the time that it means."},
	{Name: "Limiter/Waits", Needs: limiting, Run: run(limiterWaits),
		Promise: "Wait returns when the cost may be taken, and not before."},
	{Name: "Limiter/WaitsInOrder", Needs: limiting, Uses: HasDriver, Run: run(limiterWaitsInOrder),
		Promise: "Waiters of several clients are served in the order in which they asked."},
	{Name: "Limiter/WaitLeaves", Needs: limiting, Run: run(limiterWaitLeaves),
		Promise: "A wait that ends with its context gives back what it took, and one that would be too long fails at once."},
	{Name: "Limiter/WaitIsTold", Needs: limiting, Run: run(limiterWaitIsTold),
		Promise: "A wait ends when another client resets the key, and not only when it would have without that."},
	{Name: "Limiter/Exact", Needs: limiting, Uses: HasDriver, Run: run(limiterExact),
		Promise: "Every decision is the one of package limit at the time that the engine tells, to the nanosecond."},
	{Name: "Limiter/EveryWindow", Needs: limiting, Uses: HasDriver, Alone: true, Run: run(limiterEveryWindow),
		Promise: "Fifty clients together are allowed no more in any time than burst and rate, by the engine's clock, and under load nearly all of it."},
	{Name: "Limiter/Leased", Needs: limiting, Alone: true, Run: run(limiterLeased),
		Promise: "Fifty clients that decide by blocks, one lost with its block and one stopped for a while, together allow at least half of what burst and rate do, and no more than those in any time."},
	{Name: "Limiter/LeasedSpares", Needs: limiting, Uses: HasDriver, Alone: true, Run: run(limiterLeasedSpares),
		Promise: "Clients that decide by blocks ask the backend at most a twentieth as often as they decide, use nearly all that a window allows, and give back the rest when they are closed."},
	{Name: "Limiter/Changed", Needs: limitingWatched, Run: run(limiterChanged),
		Promise: "A watch is told limit:changed of SetRate, Reset of a key in use and Delete, and nothing of decisions, also of the one that makes the limiter."},
}

func perHour(n int64) limit.Rate { return limit.Rate{Count: n, Per: time.Hour} }

// drain takes all n that a key has.
func drain(ctx context.Context, l *holdfast.Limiter, key string, n int64) {
	d := must(l.AllowN(ctx, key, n))
	want(d.Allowed, "%d are refused: %+v", n, d)
}

func limiterBurst(ctx context.Context, e *Env) {
	l := e.Client().Limiter("l", perHour(5))
	for i := range int64(5) {
		d := must(l.Allow(ctx, "k"))
		want(d.Allowed && d.Limit == 5 && d.Remaining == 4-i && d.RetryAfter == 0, "number %d of 5 is answered %+v", i+1, d)
	}
	d := must(l.Allow(ctx, "k"))
	want(!d.Allowed, "the sixth of 5 is allowed")
	want(d.RetryAfter > 11*time.Minute && d.RetryAfter <= 12*time.Minute, "one in 12 minutes is told to come again after %s", d.RetryAfter)
	want(d.ResetAfter > 59*time.Minute && d.ResetAfter <= time.Hour, "all in an hour are told to be there after %s", d.ResetAfter)
}

func limiterRefills(ctx context.Context, e *Env) {
	l := e.Client().Limiter("l", limit.Rate{Count: 1, Per: time.Second})
	d := must(l.Allow(ctx, "k"))
	for d.Allowed { // two in a row that are slower than the rate prove nothing
		d = must(l.Allow(ctx, "k"))
	}
	want(d.RetryAfter > 0 && d.RetryAfter <= time.Second, "a refusal tells %+v", d)
	for !d.Allowed { // the engine's clock may be slower, and then tells what is left
		told := d.RetryAfter
		time.Sleep(told)
		d = must(l.Allow(ctx, "k"))
		want(d.Allowed || d.RetryAfter < told, "%s later it is refused, and told %+v", told, d)
	}
}

func limiterKeysAreApart(ctx context.Context, e *Env) {
	s := e.Client()
	l, other := s.Limiter("l", perHour(1)), s.Limiter("l/a", perHour(1))
	for _, key := range append([]string{""}, texts...) {
		want(must(l.Allow(ctx, key)).Allowed, "%q is refused for what another key took", key)
		want(must(other.Allow(ctx, key)).Allowed, "%q of another limiter is refused", key)
		want(!must(l.Allow(ctx, key)).Allowed, "%q is allowed twice", key)
	}
}

func limiterOverClients(ctx context.Context, e *Env) {
	a, b := e.Client().Limiter("l", perHour(3)), e.Client().Limiter("l", perHour(3))
	drain(ctx, a, "k", 2)
	want(must(b.Available(ctx, "k")) == 1, "another client can take %d of 1", must(b.Available(ctx, "k")))
	drain(ctx, b, "k", 1)
	want(!must(a.Allow(ctx, "k")).Allowed, "a fourth of 3 is allowed")
}

func limiterCountsExactly(ctx context.Context, e *Env) {
	clients := []*holdfast.Space{e.Client(), e.Client(), e.Client()}
	allowed := make([]bool, 100)
	together(len(allowed), func(i int) {
		allowed[i] = must(clients[i%len(clients)].Limiter("l", perHour(40)).Allow(ctx, "k")).Allowed
	})
	n := 0
	for _, ok := range allowed {
		if ok {
			n++
		}
	}
	want(n == 40, "of 100 at once %d are allowed; the burst is 40", n)
	limiterWindowsCountExactly(ctx, e)
}

// limiterWindowsCountExactly has ten clients ask at once for what many backends read and swap.
func limiterWindowsCountExactly(ctx context.Context, e *Env) {
	clients := make([]*holdfast.Space, 10)
	for i := range clients {
		clients[i] = e.Client()
	}
	for _, rate := range []limit.Rate{{Count: 20, Per: limit.MaxPer, Algorithm: limit.FixedWindow}, {Count: 20, Per: time.Hour, Algorithm: limit.SlidingLog}} {
		allowed := make([]int, len(clients))
		together(len(clients), func(i int) {
			l := clients[i].Limiter("l-"+rate.Algorithm.String(), rate)
			for range 3 {
				if must(l.Allow(ctx, "k")).Allowed {
					allowed[i]++
				}
			}
		})
		n := 0
		for _, a := range allowed {
			n += a
		}
		want(n == 20, "%s: of 30 by ten clients %d are allowed; the count is 20", rate.Algorithm, n)
	}
}

func limiterCostsAreWhole(ctx context.Context, e *Env) {
	l := e.Client().Limiter("l", perHour(5))
	drain(ctx, l, "k", 3)
	want(!must(l.AllowN(ctx, "k", 3)).Allowed, "3 of 2 are allowed")
	d := must(l.AllowN(ctx, "k", 6))
	want(!d.Allowed && d.RetryAfter == limit.Never, "6 of at most 5: %+v", d)
	drain(ctx, l, "k", 2)
	refused(second(l.AllowN(ctx, "k", -1)), holdfast.ErrInvalid, "a negative cost")
	refused(l.WaitN(ctx, "k", 6), holdfast.ErrInvalid, "a wait for 6 of at most 5")
}

func limiterPeek(ctx context.Context, e *Env) {
	l := e.Client().Limiter("l", perHour(2))
	for range 5 {
		d := must(l.Peek(ctx, "k", 2))
		want(d.Allowed && d.Remaining == 2, "Peek of an unused key: %+v", d)
	}
	drain(ctx, l, "k", 2)
	d := must(l.Peek(ctx, "k", 1))
	want(!d.Allowed && d.Remaining == 0 && d.RetryAfter > 0, "Peek of a drained key: %+v", d)
	want(must(l.Available(ctx, "k")) == 0, "%d are available of a drained key", must(l.Available(ctx, "k")))
}

func limiterCancel(ctx context.Context, e *Env) {
	l := e.Client().Limiter("l", perHour(5))
	r := must(l.Reserve(ctx, "k", 5))
	want(r.Decision.Allowed, "5 of 5 are refused")
	denied := must(l.Reserve(ctx, "k", 1))
	want(!denied.Decision.Allowed, "a sixth of 5 is reserved")
	done(denied.Cancel(ctx))
	want(must(l.Available(ctx, "k")) == 0, "the cancel of a refusal gave something back")
	done(r.Settle(ctx, 2))
	want(must(l.Available(ctx, "k")) == 3, "after 5 became 2, %d of 5 are there", must(l.Available(ctx, "k")))
	r = must(l.Reserve(ctx, "k", 3))
	done(r.Cancel(ctx))
	want(must(l.Available(ctx, "k")) == 3, "after a cancel %d are there, not 3", must(l.Available(ctx, "k")))
}

func limiterDebt(ctx context.Context, e *Env) {
	l := e.Client().Limiter("l", perHour(5))
	r := must(l.Reserve(ctx, "k", 1))
	done(r.Settle(ctx, 10))
	d := must(l.Allow(ctx, "k"))
	want(!d.Allowed && d.RetryAfter > time.Hour && d.RetryAfter <= 72*time.Minute, "with a debt of 5 at 5 an hour: %+v", d)
}

func limiterRateDiffers(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	drain(ctx, a.Limiter("l", perHour(5)), "k", 1)
	for _, rate := range []limit.Rate{perHour(6), {Count: 5, Per: time.Hour, Burst: 9}, {Count: 5, Per: time.Hour, Algorithm: limit.SlidingLog}} {
		refused(second(b.Limiter("l", rate).Allow(ctx, "k")), holdfast.ErrConflict, "Allow at "+rate.String())
		refused(second(b.Limiter("l", rate).Peek(ctx, "other", 1)), holdfast.ErrConflict, "Peek at "+rate.String())
	}
	same := limit.Rate{Count: 5, Per: time.Hour, Burst: 5, Name: "a name decides nothing"}
	want(must(b.Limiter("l", same).Available(ctx, "k")) == 4, "what was refused has taken something")
}

func limiterRateOfItsOwn(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	none := limit.Rate{}
	refused(second(b.Limiter("l", none).Allow(ctx, "k")), holdfast.ErrNotFound, "Allow of a limiter that does not exist, without a rate")
	drain(ctx, a.Limiter("l", perHour(5)), "k", 1)
	d := must(b.Limiter("l", none).Allow(ctx, "k"))
	want(d.Allowed && d.Limit == 5 && d.Remaining == 3, "without a rate: %+v", d)
	want(errors.Is(b.Limiter("absent", none).Delete(ctx), holdfast.ErrNotFound), "Delete of a limiter that does not exist succeeds")
}

func limiterSetRate(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	l, old := a.Limiter("l", perHour(5)), b.Limiter("l", perHour(5))
	drain(ctx, l, "k", 5)
	done(l.SetRate(ctx, perHour(7)))
	d := must(l.Allow(ctx, "k"))
	want(d.Allowed && d.Limit == 7 && d.Remaining == 6, "after SetRate: %+v", d)
	refused(second(old.Allow(ctx, "k")), holdfast.ErrConflict, "Allow at the old rate")
	want(must(b.Limiter("l", perHour(7)).Available(ctx, "k")) == 6, "another client sees %d of 6", must(b.Limiter("l", perHour(7)).Available(ctx, "k")))
	done(b.Limiter("new", limit.Rate{}).SetRate(ctx, perHour(2)))
	want(must(a.Limiter("new", limit.Rate{}).Available(ctx, "k")) == 2, "SetRate does not make a limiter")
}

func limiterReset(ctx context.Context, e *Env) {
	a, b := e.Client().Limiter("l", perHour(5)), e.Client().Limiter("l", perHour(5))
	drain(ctx, a, "k", 5)
	drain(ctx, a, "other", 5)
	done(b.Reset(ctx, "k"))
	want(must(a.Available(ctx, "k")) == 5, "after Reset %d of 5 are there", must(a.Available(ctx, "k")))
	want(must(a.Available(ctx, "other")) == 0, "Reset of another key gave back %d", must(a.Available(ctx, "other")))
}

func limiterResetForgets(ctx context.Context, e *Env) {
	forgetting(ctx, e.Client(), func(l *holdfast.Limiter, _ limit.Rate) { done(l.Reset(ctx, "k")) })
}

func limiterSetRateForgets(ctx context.Context, e *Env) {
	forgetting(ctx, e.Client(), func(l *holdfast.Limiter, rate limit.Rate) { done(l.SetRate(ctx, rate)) })
	forgetting(ctx, e.Client(), func(l *holdfast.Limiter, _ limit.Rate) { done(l.Delete(ctx)) })
}

// forgetting has others use a key again after what was reserved of it was forgotten.
func forgetting(ctx context.Context, s *holdfast.Space, forget func(*holdfast.Limiter, limit.Rate)) {
	for _, rate := range []limit.Rate{
		perHour(5), {Count: 5, Per: time.Hour, Burst: 5, Initial: 4},
		{Count: 5, Per: limit.MaxPer, Algorithm: limit.FixedWindow},
		{Count: 5, Per: 1000 * time.Hour, Algorithm: limit.SlidingWindow},
		{Count: 5, Per: time.Hour, Algorithm: limit.SlidingLog},
	} {
		l := s.Limiter(fmt.Sprintf("f-%s-%d", rate.Algorithm, rate.Initial), rate)
		r := must(l.Reserve(ctx, "k", 3))
		forget(l, rate)
		drain(ctx, l, "k", 4)
		left := must(l.Available(ctx, "k"))
		done(r.Cancel(ctx))
		want(must(l.Available(ctx, "k")) == left, "%s: after a cancel of what was forgotten %d are there, not %d", rate.Algorithm, must(l.Available(ctx, "k")), left)
		done(l.Delete(ctx))
	}
}

func limiterDelete(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	drain(ctx, a.Limiter("l", perHour(5)), "k", 5)
	done(a.Limiter("l", limit.Rate{}).Delete(ctx))
	refused(second(b.Limiter("l", limit.Rate{}).Allow(ctx, "k")), holdfast.ErrNotFound, "Allow after Delete, without a rate")
	refused(a.Limiter("l", limit.Rate{}).Delete(ctx), holdfast.ErrNotFound, "a second Delete")
	drain(ctx, b.Limiter("l", perHour(6)), "k", 6)
}

func limiterStaysDeleted(ctx context.Context, e *Env) {
	s := e.Client()
	for what, use := range map[string]func(*holdfast.Limiter, *holdfast.Reservation){
		"Cancel":          func(_ *holdfast.Limiter, r *holdfast.Reservation) { done(r.Cancel(ctx)) },
		"Settle for less": func(_ *holdfast.Limiter, r *holdfast.Reservation) { done(r.Settle(ctx, 1)) },
		"Settle for more": func(_ *holdfast.Limiter, r *holdfast.Reservation) { done(r.Settle(ctx, 9)) },
		"a look": func(l *holdfast.Limiter, _ *holdfast.Reservation) {
			unused(ctx, l)
			unused(ctx, e.Client().Limiter("l-a look", perHour(5))) // of a client that has never seen it
		},
	} {
		l := s.Limiter("l-"+what, perHour(5))
		r := must(l.Reserve(ctx, "k", 2))
		done(l.Delete(ctx))
		use(l, r)
		refused(second(s.Limiter("l-"+what, limit.Rate{}).Peek(ctx, "k", 1)), holdfast.ErrNotFound, "after "+what+" a Peek without a rate")
		drain(ctx, s.Limiter("l-"+what, perHour(7)), "k", 7)
	}
}

// unused looks at a key of a limiter that is not there.
func unused(ctx context.Context, l *holdfast.Limiter) {
	d := must(l.Peek(ctx, "k", 1))
	want(d.Allowed && d.Limit == 5 && d.Remaining == 5, "Peek of a limiter that is not there: %+v", d)
	want(must(l.Available(ctx, "k")) == 5, "%d are available of a limiter that is not there", must(l.Available(ctx, "k")))
}

func limiterAlgorithms(ctx context.Context, e *Env) {
	s := e.Client()
	for _, c := range []struct {
		rate        limit.Rate
		least, most time.Duration // that a refusal tells
	}{
		{limit.Rate{Count: 3, Per: time.Hour, Algorithm: limit.TokenBucket}, 19 * time.Minute, 20 * time.Minute},
		{limit.Rate{Count: 3, Per: limit.MaxPer, Algorithm: limit.FixedWindow}, 0, limit.MaxPer},
		{limit.Rate{Count: 3, Every: limit.Year, Algorithm: limit.CalendarWindow}, 0, 366 * 24 * time.Hour},
		{limit.Rate{Count: 3, Per: 100 * time.Hour, Algorithm: limit.SlidingWindow}, 100*time.Hour/3 - 1, 200 * time.Hour},
		{limit.Rate{Count: 3, Per: time.Hour, Algorithm: limit.SlidingLog}, 59 * time.Minute, time.Hour},
	} {
		l := s.Limiter("l-"+c.rate.Algorithm.String(), c.rate)
		limiterAlgorithm(ctx, l, c.rate)
		d := must(l.Allow(ctx, "k"))
		want(!d.Allowed && d.RetryAfter > c.least && d.RetryAfter <= c.most, "%s: the fourth of 3 is answered %+v", c.rate.Algorithm, d)
	}
}

// limiterAlgorithm takes 3 of 3, giving one back.
func limiterAlgorithm(ctx context.Context, l *holdfast.Limiter, rate limit.Rate) {
	drain(ctx, l, "k", 1)
	r := must(l.Reserve(ctx, "k", 2))
	want(r.Decision.Allowed, "%s: 2 of 2 are refused: %+v", rate.Algorithm, r.Decision)
	done(r.Settle(ctx, 1))
	drain(ctx, l, "k", 1)
	want(must(l.Available(ctx, "other")) == 3, "%s: another key has %d of 3", rate.Algorithm, must(l.Available(ctx, "other")))
}

func limiterWaits(ctx context.Context, e *Env) {
	l := e.Client().Limiter("l", limit.Rate{Count: 10, Per: time.Second, Burst: 1})
	start := time.Now()
	for range 4 {
		done(l.Wait(ctx, "k"))
	}
	want(time.Since(start) >= 299*time.Millisecond, "4 at 10 a second took %s", time.Since(start))
}

func limiterWaitsInOrder(ctx context.Context, e *Env) {
	drivers := limitDrivers(ctx, e, 2)
	rate := limit.Rate{Count: 1, Per: time.Hour}
	var last int64
	for i := range 6 {
		r := limitRequest(e.Prefix()+"l", rate)
		r.Wait = 24 * time.Hour
		reply := must(drivers[i%2].Limit(ctx, r))
		at := reply.Now + int64(reply.Decision.RetryAfter)
		want(reply.Decision.Allowed, "waiter %d is refused: %+v", i, reply.Decision)
		want(i == 0 || at-last >= int64(time.Hour-time.Second) && at-last <= int64(time.Hour+time.Second), "waiter %d at one an hour is served %s after the one before", i, time.Duration(at-last))
		last = at
	}
	r := limitRequest(e.Prefix()+"l", rate)
	r.Wait = time.Hour
	want(!must(drivers[0].Limit(ctx, r)).Decision.Allowed, "a caller that waits for an hour at most is given a place in 6 hours")
}

// limitDrivers opens clients without the library around them, which close with
// the case.
func limitDrivers(ctx context.Context, e *Env, n int) []driver.Driver {
	drivers := make([]driver.Driver, n)
	for i := range drivers {
		drivers[i] = must(e.Driver(ctx))
		e.keep(must(holdfast.New(drivers[i])))
	}
	return drivers
}

// limitRequest asks for one.
func limitRequest(name string, rate limit.Rate) *driver.LimitRequest {
	r := &driver.LimitRequest{Name: name, Rate: rate, Cost: 1}
	_, _ = rand.Read(r.ID[:])
	return r
}

func limiterWaitLeaves(ctx context.Context, e *Env) {
	l := e.Client().Limiter("l", perHour(1)) // time alone does nothing within the case
	drain(ctx, l, "k", 1)
	short, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := l.Wait(short, "k")
	refused(err, context.DeadlineExceeded, "a wait of an hour within half a minute")
	want(short.Err() == nil, "it failed only when its time was over")
	want(holdfast.RetryAfter(err) > 30*time.Second, "it tells to come again after %s", holdfast.RetryAfter(err))
	leaving, leave := context.WithCancel(context.WithoutCancel(ctx)) // which has time for an hour
	defer leave()
	wait := later(func() (struct{}, error) { return struct{}{}, l.Wait(leaving, "k") })
	eventually(ctx, "a waiter has no place", func() bool {
		if wait.over() {
			fail("the wait has ended: %w", wait.err)
		}
		return must(l.Peek(ctx, "k", 1)).RetryAfter > time.Hour
	})
	leave()
	refused(second(wait.wait(ctx, "a wait that was cancelled")), context.Canceled, "a wait that was cancelled")
	eventually(ctx, "a waiter that has left still has its place", func() bool {
		return must(l.Peek(ctx, "k", 1)).RetryAfter <= time.Hour
	})
}

func limiterWaitIsTold(ctx context.Context, e *Env) {
	l, other := e.Client().Limiter("l", perHour(1)), e.Client().Limiter("l", perHour(1))
	drain(ctx, l, "k", 1)
	leaving, leave := context.WithCancel(context.WithoutCancel(ctx)) // which has time for an hour
	defer leave()
	wait := later(func() (struct{}, error) { return struct{}{}, l.Wait(leaving, "k") })
	eventually(ctx, "a waiter has no place", func() bool { return must(other.Peek(ctx, "k", 1)).RetryAfter > time.Hour })
	done(other.Reset(ctx, "k"))
	done(second(wait.wait(ctx, "a wait for a key that was reset")))
}

// exactRates are rates whose units do not refill in whole nanoseconds, or begin with
// less, or are as great as they can be.
var exactRates = []limit.Rate{
	{Count: 7, Per: 100 * time.Millisecond, Burst: 30},
	{Count: 333, Per: 10 * time.Millisecond, Burst: 1000, Initial: 3},
	{Count: limit.MaxCount, Per: time.Second, Burst: limit.MaxCount},
	{Count: 1, Per: limit.MaxPer, Burst: 9},
	{Count: 9, Per: 20 * time.Millisecond, Algorithm: limit.FixedWindow},
	{Count: 9, Per: 20 * time.Millisecond, Algorithm: limit.SlidingWindow},
	{Count: 9, Per: 20 * time.Millisecond, Algorithm: limit.SlidingLog},
}

func limiterExact(ctx context.Context, e *Env) {
	d := limitDrivers(ctx, e, 1)[0]
	rnd := mathrand.New(mathrand.NewPCG(1, 2))
	for i, rate := range exactRates {
		x := exactly{d: d, name: fmt.Sprint(e.Prefix(), i), rate: rate}
		for range 60 {
			x.step(ctx, rnd)
		}
	}
}

// exactly asks one key at random, and package limit beside it.
type exactly struct {
	d     driver.Driver
	name  string
	rate  limit.Rate
	state limit.State
	taken []limit.Reservation
}

func (x *exactly) step(ctx context.Context, rnd *mathrand.Rand) {
	r := limitRequest(x.name, x.rate)
	r.Key, r.Cost = "k", 1+rnd.Int64N(x.rate.Limit())/3
	switch n := rnd.IntN(8); {
	case n == 0:
		r.Op = driver.LimitPeek
	case n < 3 && len(x.taken) > 0:
		last := len(x.taken) - 1
		r.Op, r.Reservation = driver.LimitSettle+driver.LimitOp(n-1), x.taken[last]
		r.Cost = rnd.Int64N(2 * r.Reservation.Cost)
		x.taken = x.taken[:last]
	case n == 3:
		r.Wait = time.Duration(rnd.Int64N(int64(50 * time.Millisecond)))
	case n == 4:
		r.Ahead = time.Duration(1 + rnd.Int64N(int64(50*time.Millisecond)))
	}
	x.compare(r, must(x.d.Limit(ctx, r)))
}

func (x *exactly) compare(r *driver.LimitRequest, got driver.LimitReply) {
	var v limit.Reservation
	var d limit.Decision
	switch r.Op {
	case driver.LimitTake:
		x.state, v, d = limit.Decide(x.rate, x.state, got.Now, limit.Ask{Cost: r.Cost, Wait: r.Wait, Ahead: r.Ahead})
	case driver.LimitPeek:
		d = limit.Peek(x.rate, x.state, got.Now, r.Cost)
	case driver.LimitSettle:
		x.state = limit.Settle(x.rate, x.state, got.Now, r.Reservation, r.Cost)
	case driver.LimitReturn:
		x.state = limit.Return(x.rate, x.state, got.Now, r.Reservation, r.Cost)
	}
	v.Epoch = got.Reservation.Epoch // which the engine chooses
	want(got.Decision == d && got.Reservation == v, "%s: %+v is answered %+v, and should be %+v with %+v", x.rate, *r, got, d, v)
	if d.Allowed && v.Cost > 0 {
		x.taken = append(x.taken, v)
	}
}

// windowClients, windowFor and windowRate are the load of Limiter/EveryWindow: each
// client asks as often as it can.
const (
	windowClients = 50
	windowFor     = 2 * time.Second
)

// A machine that is held up for a second still allows what it may.
var windowRate = limit.Rate{Count: 20, Per: time.Second, Burst: 20}

func limiterEveryWindow(ctx context.Context, e *Env) {
	var (
		mu              sync.Mutex
		admitted, asked []int64 // when, by the engine's clock
		name            = e.Prefix() + "l"
		end             = time.Now().Add(windowFor)
	)
	drivers := limitDrivers(ctx, e, 10)
	together(windowClients, func(i int) {
		for time.Now().Before(end) {
			reply := must(drivers[i%len(drivers)].Limit(ctx, limitRequest(name, windowRate)))
			mu.Lock()
			asked = append(asked, reply.Now)
			if reply.Decision.Allowed {
				admitted = append(admitted, reply.Now)
			}
			mu.Unlock()
			if !reply.Decision.Allowed {
				time.Sleep(min(reply.Decision.RetryAfter, 20*time.Millisecond))
			}
		}
	})
	judgeWindows(admitted, asked, windowRate)
}

// judgeWindows leaves the case if more than burst and rate were admitted in any
// time, or less than 0.95 of what the rate allows to those that asked when they asked: a
// machine that is held up asks less.
func judgeWindows(admitted, asked []int64, rate limit.Rate) {
	slices.SortFunc(admitted, cmp.Compare[int64])
	bound := func(span int64) int64 { return rate.Limit() + rate.Count*span/int64(rate.Per) }
	for i := range admitted {
		for j := i; j < len(admitted); j++ {
			n, span := int64(j-i+1), admitted[j]-admitted[i]
			want(n <= bound(span), "within %s %d were allowed; the bound is %d", time.Duration(span), n, bound(span))
		}
	}
	due := allowedTo(asked, rate)
	want(float64(len(admitted)) >= 0.95*float64(due), "%d of %d were allowed, where the rate allows %d", len(admitted), len(asked), due)
}

// allowedTo is to how many of those that ask at these times a rate allows one each.
func allowedTo(asked []int64, rate limit.Rate) (n int) {
	slices.Sort(asked)
	var s limit.State
	var d limit.Decision
	for _, at := range asked {
		if s, d = limit.Take(rate, s, at, 1); d.Allowed {
			n++
		}
	}
	return n
}

func limiterChanged(ctx context.Context, e *Env) {
	s := e.Client()
	l := s.Limiter("l", perHour(5))
	w := watch(ctx, e.Client(), "l", 0)
	for range 3 {
		must(l.Allow(ctx, "k"))
		must(l.Peek(ctx, "k", 1))
	}
	done(l.Reset(ctx, "unused"))
	done(l.SetRate(ctx, perHour(6)))
	drain(ctx, l, "k", 1)
	done(l.Reset(ctx, "k"))
	done(l.Delete(ctx))
	done(s.Limiter("last", perHour(1)).SetRate(ctx, perHour(2)))
	for _, name := range []string{"l", "l", "l", "last"} {
		w.expect("limit:changed", name)
	}
}
