package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/limits"
	"github.com/holdfast-io/holdfast/limit"
)

// limiters are what a start takes from.
type limiters []ask

// ask is what is asked of one limiter.
type ask struct {
	name, key string
	rate      limit.Rate // of a limiter that has one: none
	cost      int64
}

// asks are the limiters of the command line.
func (m *mix) asks() (all limiters, err error) {
	if m.key != "" && len(m.limiters) == 0 {
		return nil, usagef("add --limiter NAME=100/1m", "--key is of limiters")
	}
	for _, text := range m.limiters {
		a, wrong := parseAsk(text)
		a.key = m.key
		err = errors.Join(err, wrong)
		all = append(all, a)
	}
	if err != nil {
		return nil, &failure{code: exitUsage, err: err, hint: rateHint}
	}
	return all, nil
}

// parseAsk reads NAME, NAME=RATE or NAME=RATE:COST; the name may have = in it if
// another one follows.
func parseAsk(text string) (a ask, err error) {
	a = ask{name: text, cost: 1}
	at := strings.LastIndexByte(text, '=')
	if at < 0 {
		return a, nil
	}
	a.name = text[:at]
	rate, cost, costs := strings.Cut(text[at+1:], ":")
	if rate != "" {
		if a.rate, err = limits.ParseRate(rate); err == nil {
			err = a.rate.Check()
		}
	}
	if costs && err == nil {
		if a.cost, err = strconv.ParseInt(cost, 10, 64); err == nil && a.cost < 1 {
			err = fmt.Errorf("a cost of %d; it has to be at least 1", a.cost)
		}
	}
	if most := a.rate.Limit(); err == nil && a.rate.Count > 0 && a.cost > most { // before the limiter is made
		err = fmt.Errorf("a rate of %s never allows a cost of %d: the most is %d", rate, a.cost, most)
	}
	if err != nil {
		return a, fmt.Errorf("--limiter %s: write NAME, NAME=RATE or NAME=RATE:COST: %w", text, err)
	}
	return a, nil
}

// limit takes from all limiters what the start costs. A hold that is lost meanwhile
// ends the wait.
func (h *holding) limit(ctx context.Context, s *holdfast.Space, t turn) error {
	if len(h.limiters) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-t.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	take := h.limiters.wait
	if h.tries() {
		take = h.limiters.try
	}
	err := h.limiters.possible(ctx, s)
	if err == nil {
		err = take(ctx, s)
	}
	if lost := t.Err(); lost != nil {
		return lostBefore(lost)
	}
	if f, ok := errors.AsType[*failure](err); ok && f.code == exitHeld {
		f.code = h.conflict
	}
	return err
}

// possible looks at all limiters before the first is taken from: a name that is no limiter,
// or a cost that can never be, costs nothing.
func (l limiters) possible(ctx context.Context, s *holdfast.Space) error {
	if len(l) == 1 {
		return nil
	}
	for _, a := range l {
		d, err := s.Limiter(a.name, a.rate).Peek(ctx, a.key, a.cost)
		switch {
		case err != nil:
			return err
		case d.RetryAfter == limit.Never:
			return a.refused(&d)
		}
	}
	return nil
}

// wait waits for each limiter in turn. What one has allowed passes unused if a later
// one does not in time.
func (l limiters) wait(ctx context.Context, s *holdfast.Space) error {
	for _, a := range l {
		if err := s.Limiter(a.name, a.rate).WaitN(ctx, a.key, a.cost); err != nil {
			return err
		}
	}
	return nil
}

// try takes from all, or gives back what it took.
func (l limiters) try(ctx context.Context, s *holdfast.Space) error {
	var taken []*holdfast.Reservation
	for _, a := range l {
		r, err := s.Limiter(a.name, a.rate).Reserve(ctx, a.key, a.cost)
		if err == nil && r.Decision.Allowed {
			taken = append(taken, r)
			continue
		}
		giveBack(ctx, taken)
		if err != nil {
			return err
		}
		return a.refused(&r.Decision)
	}
	if ctx.Err() != nil { // a signal, or the hold was lost
		giveBack(ctx, taken)
	}
	return context.Cause(ctx)
}

// giveBack gives back what was reserved, also after the end of ctx; what it cannot tell
// passes unused.
func giveBack(ctx context.Context, taken []*holdfast.Reservation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, r := range taken {
		_ = r.Cancel(ctx)
	}
}

func (a ask) refused(d *limit.Decision) error {
	if d.RetryAfter == limit.Never {
		return usagef("give a smaller cost, or another rate", "limiter %q: a cost of %d is more than the %d that there can ever be", a.name, a.cost, d.Limit)
	}
	after := d.RetryAfter.Round(time.Millisecond)
	return &failure{code: exitHeld, err: fmt.Errorf("limiter %q: refused by the rate", a.name), hint: fmt.Sprintf("try again in %s, or wait for it with --wait", after)}
}
