package run

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
)

// sweeping looks at the heads of all runs that this program runs, many in one request, whatever
// was told: a thousand runs that wait cost a few requests a re-check.
type sweeping struct {
	runs map[*swept]bool
	stop context.CancelFunc
	done chan struct{}
}

// swept is a run with the revision that its head had when it was looked at last.
type swept struct {
	head string
	rev  holdfast.Revision
	look func()
}

// sweepAtOnce is how many heads are in one request.
const sweepAtOnce = 50

// sweepFor looks at the run until leave is called, and has it look when it has changed.
func (p *Pipelines) sweepFor(a *active) (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sweeping == nil {
		ctx, stop := context.WithCancel(context.Background())
		p.sweeping = &sweeping{runs: map[*swept]bool{}, stop: stop, done: make(chan struct{})}
		go p.sweep(ctx, p.sweeping)
	}
	s, one := p.sweeping, &swept{a.head(), a.rev, a.look}
	s.runs[one] = true
	return func() { p.leaveSweep(s, one) }
}

// leaveSweep ends the sweeps with the last run.
func (p *Pipelines) leaveSweep(s *sweeping, one *swept) {
	p.mu.Lock()
	delete(s.runs, one)
	last := len(s.runs) == 0
	if last && p.sweeping == s {
		p.sweeping = nil
	}
	p.mu.Unlock()
	if last {
		s.stop()
		<-s.done
	}
}

func (p *Pipelines) sweep(ctx context.Context, s *sweeping) {
	defer close(s.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.between()):
		}
		p.mu.Lock()
		all := slices.Collect(maps.Keys(s.runs))
		p.mu.Unlock()
		for some := range slices.Chunk(all, sweepAtOnce) {
			p.sweepSome(ctx, some)
		}
	}
}

// sweepSome wakes the runs that were written to since the last sweep; if that cannot be found
// out, all of them: they ask for themselves.
func (p *Pipelines) sweepSome(ctx context.Context, some []*swept) {
	var t holdfast.Txn
	for _, one := range some {
		t.Then = append(t.Then, headOp(one.head))
	}
	res, err := p.txn(ctx, t)
	for i, one := range some {
		now := holdfast.Revision(0)
		if err == nil && len(res.Results[i].Entries) > 0 {
			now = res.Results[i].Entries[0].Modified
		}
		if now != one.rev || now == 0 {
			one.look()
		}
		one.rev = now
	}
}

// headOp gets a head without its value, or if it is not there maybe that of another run.
func headOp(head string) holdfast.Op {
	return holdfast.RangeOp(head, holdfast.KeysOnly(), holdfast.MaxKeys(1))
}
