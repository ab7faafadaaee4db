package drivertest

import (
	"context"
	"errors"
	"flag"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// leasedRate and leasedFor are the load of Limiter/Leased.
var leasedRate = limit.Rate{Count: 200, Per: time.Second, Burst: 200}

const leasedFor = 3 * time.Second

// leasedLeast is which part of what the rate allows Limiter/Leased wants: a machine that is held up loses blocks, so that
// much of it is asked for only on one of its own. A quarter of a second of what refills is always ahead of its use, and some is lost
// with two clients: of 3 s about 0.9 can be had.
var leasedLeast = flag.Float64("drivertest.leased", 0.5, "which part of what the rate allows Limiter/Leased has to see allowed")

// span is when a call was made and when it returned: it was decided in between.
type span struct{ from, to time.Time }

func limiterLeased(ctx context.Context, e *Env) {
	spaces := make([]*holdfast.Space, 10)
	for i := range spaces {
		spaces[i] = e.Client()
	}
	var (
		mu       sync.Mutex
		admitted []span
		asked    []int64
		end      = time.Now().Add(leasedFor)
		lost     = e.Client() // a program of its own, which ends without giving anything back
	)
	together(windowClients, func(i int) {
		s := spaces[i%len(spaces)]
		if i == 0 {
			s = lost
		}
		l := s.Limiter("l", leasedRate).Leased()
		for time.Now().Before(end) {
			from := time.Now()
			d := allowed(l.Allow(ctx, "k"))
			to := time.Now()
			mu.Lock()
			asked = append(asked, from.UnixNano())
			if d.Allowed {
				admitted = append(admitted, span{from, to})
			}
			n := len(admitted)
			mu.Unlock()
			switch {
			case i == 0 && n > 300: // it is lost
				return
			case i == 1 && n > 300: // it is stopped, once
				time.Sleep(time.Second)
				i = 2
			}
			time.Sleep(20 * time.Millisecond)
		}
		awayOr(l.Close())
	})
	judgeSpans(admitted, leasedRate)
	due := allowedTo(asked, leasedRate)
	want(float64(len(admitted)) >= *leasedLeast*float64(due), "%d of %d were allowed, where the rate allows %d", len(admitted), len(asked), due)
}

// allowed is a decision; of a backend that is away, as under load it may be for a moment, one that allows nothing.
func allowed(d limit.Decision, err error) limit.Decision {
	awayOr(err)
	return d
}

// awayOr leaves the case if err is not nil, and not that the backend is away.
func awayOr(err error) {
	if !errors.Is(err, holdfast.ErrUnavailable) {
		done(err)
	}
}

// judgeSpans leaves the case if more than burst and rate were surely decided within any
// time.
func judgeSpans(admitted []span, rate limit.Rate) {
	bound := func(d time.Duration) int { return int(rate.Limit() + rate.Count*int64(d)/int64(rate.Per)) }
	slices.SortFunc(admitted, func(a, b span) int { return a.to.Compare(b.to) })
	for i := range admitted {
		n, from := 0, admitted[i].from
		for _, s := range admitted {
			if s.from.Before(from) {
				continue
			}
			n++
			want(n <= bound(s.to.Sub(from)), "within %s %d were allowed; the bound is %d", s.to.Sub(from), n, bound(s.to.Sub(from)))
		}
	}
}

// sparesRate is one of a window that does not end in the case.
var sparesRate = limit.Rate{Count: 5000, Per: limit.MaxPer, Algorithm: limit.FixedWindow}

// countedLimits counts the calls of a client.
type countedLimits struct {
	driver.Driver
	calls *atomic.Int64
}

func (d countedLimits) Limit(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	d.calls.Add(1)
	return d.Driver.Limit(ctx, r)
}

// spares is what clients by blocks have done.
type spares struct{ calls, decided, allowed atomic.Int64 }

// take decides until a client is refused, or was allowed so many.
func (s *spares) take(ctx context.Context, l *holdfast.LeasedLimiter, most int) {
	for range most {
		d := must(l.Allow(ctx, "k"))
		if s.decided.Add(1); !d.Allowed {
			return
		}
		s.allowed.Add(1)
	}
}

func limiterLeasedSpares(ctx context.Context, e *Env) {
	var s spares
	name := e.Prefix() + "l"
	clients := make([]*holdfast.LeasedLimiter, 5)
	for i := range clients {
		clients[i] = e.keep(must(holdfast.New(countedLimits{must(e.Driver(ctx)), &s.calls}))).Limiter(name, sparesRate).Leased()
	}
	s.take(ctx, clients[0], 300)
	done(clients[0].Close()) // with a block
	clients = clients[1:]
	least := sparesRate.Count * 99 / 100
	for round := 0; s.allowed.Load() < least && round < 5; round++ { // what one gives back in the midst others get a second later
		time.Sleep(time.Duration(min(round, 1)) * time.Second)
		together(len(clients), func(i int) { s.take(ctx, clients[i], int(sparesRate.Count)) })
	}
	for _, l := range clients {
		done(l.Close())
	}
	allowed := s.allowed.Load()
	left := must(e.keep(must(holdfast.New(must(e.Driver(ctx))))).Limiter(name, sparesRate).Available(ctx, "k"))
	want(left == sparesRate.Count-allowed, "after %d of %d %d are left", allowed, sparesRate.Count, left)
	want(allowed >= least, "%d were allowed, of %d", allowed, sparesRate.Count)
	want(20*s.calls.Load() <= s.decided.Load(), "%d decisions took %d calls", s.decided.Load(), s.calls.Load())
}
