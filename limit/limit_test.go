package limit_test

import (
	"errors"
	"flag"
	"io/fs"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

var schedules = flag.Int("limit.schedules", 5_000, "random schedules of each algorithm")

// world is a rate, its twin, and the key that both count.
type world struct {
	t    *testing.T
	r    limit.Rate
	twin *twin
	s    limit.State
	now  int64
	last int64 // now, but not before the key last changed
	seen int64 // when the key last changed
	back bool  // the clock went back before
}

func newWorld(t *testing.T, rnd *rand.Rand, a limit.Algorithm) *world {
	r := limit.Rate{Algorithm: a, Count: 1 + rnd.Int64N(12), Per: time.Duration(1000 + rnd.Int64N(200_000))}
	if rnd.IntN(4) == 0 {
		r.Count, r.Per = 1+rnd.Int64N(10_000), time.Duration(1+rnd.Int64N(int64(limit.MaxPer/1000)))*1000
	}
	w := &twin{count: r.Count, kind: "fixed"}
	switch a {
	case limit.GCRA, limit.TokenBucket:
		r.Burst = rnd.Int64N(2 * r.Count)
		w.kind, w.burst = "bucket", r.Limit()
		w.initial = w.burst
		if rnd.IntN(3) == 0 {
			r.Initial = 1 + rnd.Int64N(w.burst)
			w.initial = r.Initial
		}
	case limit.CalendarWindow:
		r.Per, r.Every = 0, limit.Hour+limit.Period(rnd.IntN(4))
		r.Offset = time.Duration(rnd.IntN(1440)-720) * time.Minute
		w.kind, w.zone, w.layout = "calendar", r.Offset, []string{"", "2006-01-02 15", "2006-01-02", "2006-01", "2006"}[r.Every]
	case limit.SlidingWindow:
		w.kind = "sliding"
	case limit.SlidingLog:
		w.kind = "log"
	}
	w.per = int64(r.Per)
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	return &world{t: t, r: r, twin: w, now: 1<<60 + rnd.Int64N(1<<60)}
}

// step is how far the clock goes: mostly by the grain of the rate, sometimes by a
// whole window and a hair, sometimes not at all, sometimes back.
func (w *world) step(rnd *rand.Rand) {
	per := int64(w.r.Per)
	if per == 0 {
		per = int64([]time.Duration{0, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour, 365 * 24 * time.Hour}[w.r.Every])
	}
	grain := max(per/w.r.Count, 1)
	switch rnd.IntN(8) {
	case 0:
	case 1:
		w.now += per + rnd.Int64N(3) - 1
	case 2:
		w.now += rnd.Int64N(2 * per)
	case 3:
		if rnd.IntN(4) == 0 {
			w.now -= rnd.Int64N([]int64{1, 3}[rnd.IntN(2)] * per)
			w.back = true
		}
	default:
		w.now += rnd.Int64N(2*grain + 1)
	}
	w.last = w.time()
}

// time is what a decision goes by. A clock that was set back leaves a key in the window that it was in, and of a log at
// its last admission; a bucket goes by the clock, and is as empty as that was ahead.
func (w *world) time() int64 {
	switch {
	case w.twin.kind == "bucket" || w.twin.astray(w.now, w.seen):
		return w.now
	case w.twin.kind == "sliding":
		return max(w.now, floor(w.seen, w.twin.per)*w.twin.per)
	}
	return max(w.now, w.seen)
}

// forget forgets what is idle, which nothing may notice, open reservations neither.
func (w *world) forget(rnd *rand.Rand) {
	if limit.Idle(w.r, w.s, w.now) && rnd.IntN(2) == 0 {
		w.s = limit.State{}
	}
}

// admitted lets the twin note it.
func (w *world) admitted(cost int64) {
	if w.twin.astray(w.now, w.seen) {
		w.twin.all = nil
	}
	w.twin.all = append(w.twin.all, admission{w.last, cost})
	w.seen = w.last
}

// take asks both, and lets the twin note what was admitted.
func (w *world) take(cost int64) {
	w.t.Helper()
	w.twin.seen(w.last, cost)
	peek := limit.Peek(w.r, w.s, w.now, cost)
	s, d := limit.Take(w.r, w.s, w.now, cost)
	want := cost <= w.r.Limit() && (w.twin.astray(w.now, w.seen) || w.twin.allows(w.last, cost))
	if d.Allowed && !want {
		w.t.Fatalf("%+v at %d: a cost of %d is above the bound: %+v after %+v", w.r, w.now, cost, d, w.twin.all)
	}
	if !d.Allowed && want {
		w.t.Fatalf("%+v at %d: a cost of %d is refused: %+v after %+v", w.r, w.now, cost, d, w.twin.all)
	}
	if peek.Allowed != d.Allowed || peek.RetryAfter != d.RetryAfter {
		w.t.Fatalf("Peek says %+v, Take %+v", peek, d)
	}
	if w.s = s; d.Allowed && cost > 0 {
		w.admitted(cost)
	}
	if !w.back || w.twin.kind != "calendar" { // there times are told from the begin of the window, see Rate.left
		w.judge(d)
	}
}

// judge compares every figure of a decision with what happens if it is believed.
func (w *world) judge(d limit.Decision) {
	w.t.Helper()
	later := func(in time.Duration, cost int64) bool {
		return limit.Peek(w.r, w.s, w.now+int64(in), cost).Allowed
	}
	switch {
	case d.Allowed && d.RetryAfter != 0:
		w.t.Fatalf("allowed, and yet: %+v", d)
	case !d.Allowed && d.Asked > d.Limit && d.RetryAfter != limit.Never:
		w.t.Fatalf("%+v: can never be", d)
	case !d.Allowed && d.Asked <= d.Limit && (!later(d.RetryAfter, d.Asked) || later(d.RetryAfter-1, d.Asked)):
		w.t.Fatalf("%+v: %+v: RetryAfter is not the first moment", w.r, d)
	case d.Remaining > 0 && !later(0, d.Remaining), d.Remaining < d.Limit && later(0, d.Remaining+1):
		w.t.Fatalf("%+v: %+v: Remaining is wrong", w.r, d)
	}
	if w.r.Initial != 0 && w.r.Initial < w.r.Limit() {
		return
	}
	if !limit.Idle(w.r, w.s, w.now+int64(d.ResetAfter)) || d.ResetAfter > 0 && limit.Idle(w.r, w.s, w.now+int64(d.ResetAfter)-1) {
		w.t.Fatalf("%+v: %+v: ResetAfter is not the first idle moment", w.r, d)
	}
}

func eachAlgorithm(t *testing.T, f func(t *testing.T, rnd *rand.Rand, a limit.Algorithm)) {
	for a := limit.GCRA; a <= limit.SlidingLog; a++ {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(*schedules) {
				f(t, rand.New(rand.NewPCG(seed, uint64(a))), a)
			}
			t.Logf("proof: limit: %s: %d schedules", t.Name(), *schedules)
		})
	}
}

// Never above the bound, never refusing what it allows, and every figure of the
// decision true: against a twin that keeps all admissions.
func TestAgainstTwin(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, rnd *rand.Rand, a limit.Algorithm) {
		w := newWorld(t, rnd, a)
		for range 8 + rnd.IntN(20) {
			w.step(rnd)
			cost := 1 + rnd.Int64N(2)
			if rnd.IntN(4) == 0 {
				cost = rnd.Int64N(w.r.Limit() + 2)
			}
			w.take(cost)
		}
	})
}

// What is reserved and cancelled, or settled for less, never makes room for more
// than the bound; what is settled for more is paid by waiting.
func TestReservationsAgainstTwin(t *testing.T) {
	type open struct {
		v limit.Reservation
		i int // in the twin's list
	}
	eachAlgorithm(t, func(t *testing.T, rnd *rand.Rand, a limit.Algorithm) {
		w := newWorld(t, rnd, a)
		var held []open
		for range 8 + rnd.IntN(20) {
			if w.step(rnd); w.back {
				return // which of several clocks a reservation was made by, nobody knows then
			}
			w.forget(rnd)
			if len(held) > 0 && rnd.IntN(2) == 0 {
				k := rnd.IntN(len(held))
				o := held[k]
				held = append(held[:k], held[k+1:]...)
				actual := rnd.Int64N(o.v.Cost + 1)
				w.s = limit.Settle(w.r, w.s, w.now, o.v, actual)
				w.twin.all[o.i].cost, w.seen = actual, w.last
				continue
			}
			cost := 1 + rnd.Int64N(w.r.Limit())
			w.twin.seen(w.last, cost)
			s, v, d := limit.Reserve(w.r, w.s, w.now, cost)
			if d.Allowed && !w.twin.allows(w.last, cost) {
				t.Fatalf("%+v at %d: a cost of %d is above the bound: %+v after %+v", w.r, w.now, cost, d, w.twin.all)
			}
			if w.s = s; d.Allowed {
				w.admitted(cost)
				held = append(held, open{v, len(w.twin.all) - 1})
			}
		}
	})
}

// A debt is paid before anything else is allowed, and to the nanosecond.
func TestDebtAgainstTwin(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, rnd *rand.Rand, a limit.Algorithm) {
		w := newWorld(t, rnd, a)
		for range 8 + rnd.IntN(12) {
			if w.step(rnd); w.back {
				return
			}
			w.forget(rnd)
			if rnd.IntN(3) == 0 {
				cost := 1 + rnd.Int64N(2*w.r.Limit())
				w.twin.seen(w.last, 1)
				w.s = limit.Charge(w.r, w.s, w.now, cost)
				w.admitted(cost)
				continue
			}
			w.take(1 + rnd.Int64N(w.r.Limit()))
		}
	})
}

// Cancelled at once, everything is as before.
func TestCancelAtOnce(t *testing.T) {
	for a := limit.GCRA; a <= limit.SlidingLog; a++ {
		w := newWorld(t, rand.New(rand.NewPCG(7, uint64(a))), a)
		s, _ := limit.Take(w.r, limit.State{}, w.now, 1)
		before := limit.Peek(w.r, s, w.now, 1)
		s, v, d := limit.Reserve(w.r, s, w.now, 1)
		if s = limit.Cancel(w.r, s, w.now, v); d.Allowed && limit.Peek(w.r, s, w.now, 1) != before {
			t.Errorf("%s: %+v after Cancel, %+v before Reserve", a, limit.Peek(w.r, s, w.now, 1), before)
		}
	}
}

// A bucket that is full again while a reservation is open is not idle: forgotten, it
// would be given back what time has given back already.
func TestIdleWaitsForReservations(t *testing.T) {
	r := limit.Rate{Count: 6, Per: 6 * time.Second}
	s, first, _ := limit.Reserve(r, limit.State{}, 0, 3)
	s, second, _ := limit.Reserve(r, s, 0, 3)
	s = limit.Cancel(r, s, 0, first)
	now := int64(3 * time.Second)
	if limit.Idle(r, s, now) {
		s = limit.State{}
	}
	s, d := limit.Take(r, s, now, 6)
	if !d.Allowed {
		t.Fatalf("a full bucket: %+v", d)
	}
	s = limit.Cancel(r, s, now, second)
	if d := limit.Peek(r, s, now, 1); d.Allowed {
		t.Errorf("7 at once of a burst of 6: %+v", d)
	}
	if !limit.Idle(r, s, now+int64(12*time.Second)) {
		t.Error("a bucket that nothing has touched for two bursts is not idle")
	}
}

func TestTakeAll(t *testing.T) {
	many, few := limit.Rate{Count: 10, Per: time.Second, Name: "many"}, limit.Rate{Count: 2, Per: time.Second, Name: "few"}
	q := []limit.Request{{Rate: many, Cost: 1}, {Rate: few, Cost: 1}}
	for range 2 {
		if ok, ds := limit.TakeAll(0, q); !ok || ds[1].Policy != "few" {
			t.Fatal(ds)
		}
	}
	ok, ds := limit.TakeAll(0, q)
	if ok || !ds[0].Allowed || ds[1].Allowed || ds[0].Remaining != 8 {
		t.Errorf("the third: %v %+v; what one refuses must cost the other nothing", ok, ds)
	}
}

// densest is the greatest number of times within per.
func densest(times []int64, per int64) (most int) {
	from := 0
	for i, at := range times {
		for times[from] <= at-per {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// One an hour, and a billion a second.
func TestFarRates(t *testing.T) {
	hourly := limit.Rate{Count: 1, Per: time.Hour}
	s, d := limit.Take(hourly, limit.State{}, 5, 1)
	if s2, again := limit.Take(hourly, s, 6, 1); !d.Allowed || again.Allowed || again.RetryAfter != time.Hour-1 || s2.At != s.At {
		t.Errorf("hourly: %+v then %+v", d, again)
	}
	fast := limit.Rate{Count: 1_000_000_000, Per: time.Second, Burst: 1}
	s = limit.State{}
	for now := range int64(1000) {
		if s, d = limit.Take(fast, s, now, 1); !d.Allowed {
			t.Fatalf("one a nanosecond is refused at %d", now)
		}
	}
	third := limit.Rate{Count: 3, Per: time.Second, Burst: 1}
	s, n := limit.State{}, 0
	for now := int64(0); now < int64(10*time.Second); now += int64(time.Millisecond) {
		if s, d = limit.Take(third, s, now, 1); d.Allowed {
			n++
		}
	}
	if n != 30 {
		t.Errorf("3 a second for 10 seconds are %d", n)
	}
}

func TestBadRates(t *testing.T) {
	good := limit.Rate{Count: 10, Per: time.Second}
	for name, spoil := range map[string]func(*limit.Rate){
		"count 0":             func(r *limit.Rate) { r.Count = 0 },
		"count negative":      func(r *limit.Rate) { r.Count = -1 },
		"count too great":     func(r *limit.Rate) { r.Count = math.MaxInt64 },
		"per 0":               func(r *limit.Rate) { r.Per = 0 },
		"per negative":        func(r *limit.Rate) { r.Per = -time.Second },
		"per without a unit":  func(r *limit.Rate) { r.Per = 60 },
		"per too long":        func(r *limit.Rate) { r.Per = math.MaxInt64 },
		"burst negative":      func(r *limit.Rate) { r.Burst = -1 },
		"burst never filled":  func(r *limit.Rate) { r.Count, r.Per, r.Burst = 1, limit.MaxPer, 1<<40 },
		"initial above burst": func(r *limit.Rate) { r.Initial = 11 },
		"unknown algorithm":   func(r *limit.Rate) { r.Algorithm = 77 },
		"burst of a window":   func(r *limit.Rate) { r.Algorithm, r.Burst = limit.FixedWindow, 3 },
		"log too long":        func(r *limit.Rate) { r.Algorithm, r.Count = limit.SlidingLog, limit.MaxLog+1 },
		"calendar without":    func(r *limit.Rate) { r.Algorithm = limit.CalendarWindow },
		"calendar with per":   func(r *limit.Rate) { r.Algorithm, r.Every = limit.CalendarWindow, limit.Day },
		"calendar far away": func(r *limit.Rate) {
			r.Algorithm, r.Per, r.Every, r.Offset = limit.CalendarWindow, 0, limit.Day, 19*time.Hour
		},
		"every of a bucket":     func(r *limit.Rate) { r.Every = limit.Day },
		"calendar of no period": func(r *limit.Rate) { r.Algorithm, r.Per, r.Every = limit.CalendarWindow, 0, 9 },
	} {
		r := good
		if spoil(&r); !errors.Is(r.Check(), fs.ErrInvalid) {
			t.Errorf("%s: %+v: %v", name, r, r.Check())
		}
	}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
}

// Costs that can never be are refused at once, and change nothing.
func TestBadCosts(t *testing.T) {
	for a := limit.GCRA; a <= limit.SlidingLog; a++ {
		w := newWorld(t, rand.New(rand.NewPCG(3, uint64(a))), a)
		for _, cost := range []int64{-1, math.MinInt64, w.r.Limit() + 1, math.MaxInt64} {
			s, d := limit.Take(w.r, limit.State{}, w.now, cost)
			if d.Allowed || d.RetryAfter != limit.Never || s.Known {
				t.Errorf("%s: a cost of %d: %+v", a, cost, d)
			}
		}
		s := limit.Charge(w.r, limit.State{}, w.now, math.MaxInt64)
		if d := limit.Peek(w.r, s, w.now, 1); d.Allowed || d.RetryAfter <= 0 || d.Remaining != 0 {
			t.Errorf("%s: after the greatest charge: %+v", a, d)
		}
	}
}

// However often a key is charged, it comes out of its debt in the end, and not before.
func TestChargesDoNotOverflow(t *testing.T) {
	for a := limit.GCRA; a <= limit.SlidingLog; a++ {
		w := newWorld(t, rand.New(rand.NewPCG(5, uint64(a))), a)
		var longest time.Duration
		for i := range 1000 {
			w.s = limit.Charge(w.r, w.s, w.now, math.MaxInt64)
			d := limit.Peek(w.r, w.s, w.now, 1)
			if longest = max(longest, d.RetryAfter); d.Allowed || d.RetryAfter <= 0 || d.RetryAfter < longest {
				t.Fatalf("%s: after %d charges: %+v", a, i+1, d)
			}
		}
		if d := limit.Peek(w.r, w.s, w.now+int64(longest), 1); !d.Allowed {
			t.Errorf("%s: after %s: %+v", a, longest, d)
		}
	}
}

// A log takes no more memory than it was promised, and what is no longer told apart
// counts for longer, not for less.
func TestLogIsBounded(t *testing.T) {
	r := limit.Rate{Algorithm: limit.SlidingLog, Count: 10, Per: time.Hour}
	var s limit.State
	const charges = limit.MaxLog + 2000
	for now := range int64(charges) {
		s = limit.Charge(r, s, now, 1)
	}
	if len(s.Log) != limit.MaxLog {
		t.Errorf("the log has %d entries", len(s.Log))
	}
	if d := limit.Peek(r, s, limit.MaxLog+int64(time.Hour), 1); d.Allowed {
		t.Errorf("2000 charges of the last hour are forgotten: %+v", d)
	}
	if d := limit.Peek(r, s, charges+int64(time.Hour), 10); !d.Allowed {
		t.Errorf("an hour later: %+v", d)
	}
}

func TestAlgorithmNames(t *testing.T) {
	for a := limit.GCRA; a <= limit.SlidingLog; a++ {
		if b, err := limit.ParseAlgorithm(a.String()); err != nil || a != b {
			t.Error(a, b, err)
		}
	}
	if _, err := limit.ParseAlgorithm("leaky"); !errors.Is(err, fs.ErrInvalid) {
		t.Error(err)
	}
}

// A key that is reserved and cancelled over and over is idle as early as one that was
// never reserved, and what is cancelled is given back every time.
func TestReserveAndCancelForever(t *testing.T) {
	r := limit.Rate{Count: 1, Per: 24 * time.Hour, Burst: 3}
	s, _ := limit.Take(r, limit.State{}, 0, 1)
	used, _ := limit.Until(r, s, 0)
	for i := range 100_000 {
		var v limit.Reservation
		var d limit.Decision
		if s, v, d = limit.Reserve(r, s, int64(i), 2); !d.Allowed {
			t.Fatalf("what was cancelled %d times is not given back: %+v", i, d)
		}
		s = limit.Cancel(r, s, int64(i), v)
	}
	if until, ends := limit.Until(r, s, 100_000); !ends || until != used {
		t.Errorf("idle from %d on, not from %d", until, used)
	}
}

// A clock that was in 2099 for a while does not close a calendar until then; one that
// is a window ahead of another does not open it twice.
func TestCalendarAfterAWrongClock(t *testing.T) {
	r := limit.Rate{Algorithm: limit.CalendarWindow, Count: 2, Every: limit.Day}
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixNano()
	ahead := time.Date(2026, 5, 2, 0, 0, 1, 0, time.UTC).UnixNano()
	far := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	s, _ := limit.Take(r, limit.State{}, ahead, 2)
	if d := limit.Peek(r, s, now, 1); d.Allowed {
		t.Errorf("the clock before the one that used the key: %+v", d)
	}
	s, _ = limit.Take(r, s, far, 2)
	s, d := limit.Take(r, s, now, 1)
	if !d.Allowed || d.Remaining != 1 || d.ResetAfter != 12*time.Hour {
		t.Errorf("once the clock is right: %+v", d)
	}
	if until, ends := limit.Until(r, s, now); !ends || until != now+int64(12*time.Hour) {
		t.Errorf("idle from %d on", until)
	}
}

// To look whether a long log can be forgotten copies nothing.
func TestIdleLogCopiesNothing(t *testing.T) {
	r := limit.Rate{Algorithm: limit.SlidingLog, Count: limit.MaxLog, Per: time.Hour}
	var s limit.State
	for now := range int64(limit.MaxLog) {
		s, _ = limit.Take(r, s, now, 1)
	}
	if n := testing.AllocsPerRun(10, func() { limit.Idle(r, s, limit.MaxLog) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A clock that goes back by several windows, between the two at which something was taken: only a calendar
// begins anew, and not by less.
func TestClockGoesBack(t *testing.T) {
	day := 24 * time.Hour
	now := time.Date(2026, 11, 17, 23, 59, 0, 0, time.UTC)
	for a := limit.GCRA; a <= limit.SlidingLog; a++ {
		for _, days := range []time.Duration{1, 2, 3} {
			r := limit.Rate{Count: 4, Per: day, Algorithm: a}
			if a == limit.CalendarWindow {
				r.Per, r.Every = 0, limit.Day
			}
			s, _ := limit.Take(r, limit.State{}, now.UnixNano(), 4)
			s, _ = limit.Take(r, s, now.Add(days*day).UnixNano(), 4)
			_, d := limit.Take(r, s, now.Add(30*time.Second).UnixNano(), 4)
			if want := a == limit.CalendarWindow && days > 1; d.Allowed != want {
				t.Errorf("%s, back by %d days: %+v", a, days, d)
			}
		}
	}
}

// Rates that decide otherwise have another text, and those that decide alike the same one.
func TestRateString_TellsAll(t *testing.T) {
	var rates []limit.Rate
	for _, count := range []int64{5, 6} {
		for _, per := range []time.Duration{time.Minute, time.Hour} {
			for a := limit.GCRA; a <= limit.SlidingLog; a++ {
				for _, burst := range []int64{0, 5, 7} {
					for _, initial := range []int64{0, 1, 5} {
						rates = append(rates, limit.Rate{Count: count, Per: per, Algorithm: a, Burst: burst, Initial: initial})
					}
				}
			}
		}
		for every := limit.Hour; every <= limit.Year; every++ {
			for _, offset := range []time.Duration{-time.Hour, 0, time.Minute, time.Hour} {
				rates = append(rates, limit.Rate{Count: count, Algorithm: limit.CalendarWindow, Every: every, Offset: offset})
			}
		}
	}
	told := map[string]limit.Rate{}
	for _, r := range rates {
		if r.Check() != nil {
			continue
		}
		if o, ok := told[r.String()]; ok && !o.Equal(r) {
			t.Errorf("%#v and %#v are both %s", o, r, r)
		}
		told[r.String()] = r
		for text, o := range told {
			if o.Equal(r) && text != r.String() {
				t.Errorf("%s is also told as %s", text, r)
			}
		}
	}
}
