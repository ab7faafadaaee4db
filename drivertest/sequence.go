package drivertest

import (
	"context"
	"io/fs"
	"math"
	"slices"
	"sync/atomic"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var sequence = []driver.Feature{driver.FeatureSequence}

var sequenceCases = []Case{
	{Name: "Sequence/CountsUp", Needs: sequence, Run: run(sequenceCountsUp),
		Promise: "A new sequence begins at 1 and goes up by one."},
	{Name: "Sequence/Start", Needs: sequence, Run: run(sequenceStart),
		Promise: "A new sequence begins at its Start; a later Start changes nothing."},
	{Name: "Sequence/NoNumberTwice", Needs: sequence, Run: run(sequenceNoNumberTwice),
		Promise: "No number is handed out twice, whoever asks, and each client's numbers grow."},
	{Name: "Sequence/OneRefillAtATime", Needs: sequence, Uses: HasDriver, Run: run(sequenceOneRefillAtATime),
		Promise: "Goroutines that find the block empty together share one refill: none of its numbers is skipped."},
	{Name: "Sequence/Reserve", Needs: sequence, Run: run(sequenceReserve),
		Promise: "Reserve takes numbers in a row that nobody else gets."},
	{Name: "Sequence/Current", Needs: sequence, Run: run(sequenceCurrent),
		Promise: "Current is the first number that nobody has taken, and takes none."},
	{Name: "Sequence/NeverWraps", Needs: sequence, Run: run(sequenceNeverWraps),
		Promise: "At its end a sequence answers ErrExhausted again and again; it never wraps."},
	{Name: "Sequence/Delete", Needs: sequence, Run: run(sequenceDelete),
		Promise: "A deleted sequence begins anew."},
	{Name: "Sequence/Bad", Needs: sequence, Run: run(sequenceBad),
		Promise: "A batch of 0, a start of 0 or a reservation of 0 is fs.ErrInvalid and takes no number."},
}

func sequenceCountsUp(ctx context.Context, e *Env) {
	q := e.Client().Sequence("q", holdfast.BlockSize(3))
	for i := range uint64(10) {
		n := must(q.Next(ctx))
		want(n == i+1, "number %d of the sequence is %d", i+1, n)
	}
}

func sequenceStart(ctx context.Context, e *Env) {
	want(must(e.Client().Sequence("q", holdfast.StartAt(1000)).Reserve(ctx, 1)) == 1000, "a sequence that starts at 1000 did not")
	n := must(e.Client().Sequence("q", holdfast.StartAt(1)).Reserve(ctx, 1))
	want(n == 1001, "after 1000 came %d", n)
}

func sequenceNoNumberTwice(ctx context.Context, e *Env) {
	clients := []*holdfast.Space{e.Client(), e.Client(), e.Client()}
	numbers := make([][]uint64, len(clients))
	together(len(clients), func(i int) {
		q := clients[i].Sequence("q", holdfast.BlockSize(i+2))
		for range 60 {
			n := must(q.Next(ctx))
			want(len(numbers[i]) == 0 || n > numbers[i][len(numbers[i])-1], "after a client's numbers %v came %d", numbers[i], n)
			numbers[i] = append(numbers[i], n)
		}
	})
	all := slices.Sorted(slices.Values(slices.Concat(numbers...)))
	want(len(slices.Compact(slices.Clone(all))) == len(all), "a number was handed out twice: %v", all)
}

// crowded answers no Reserve until everybody asks, so that a fast backend does
// not serve them one by one.
type crowded struct {
	driver.Driver
	all <-chan struct{}
}

func (c crowded) Reserve(ctx context.Context, r *driver.ReserveRequest) (driver.ReserveReply, error) {
	select {
	case <-c.all:
		return c.Driver.Reserve(ctx, r)
	case <-ctx.Done():
		return driver.ReserveReply{}, ctx.Err()
	}
}

func sequenceOneRefillAtATime(ctx context.Context, e *Env) {
	numbers, all := make([]uint64, 100), make(chan struct{})
	s := must(holdfast.New(crowded{must(e.Driver(ctx)), all}))
	defer s.Close()
	q := s.Sub(e.Prefix()).Sequence("q", holdfast.BlockSize(10))
	var asking atomic.Int64
	together(len(numbers), func(i int) {
		if asking.Add(1) == int64(len(numbers)) {
			close(all)
		}
		numbers[i] = must(q.Next(ctx))
	})
	slices.Sort(numbers)
	for i, n := range numbers {
		want(n == uint64(i+1), "the numbers are %v", numbers)
	}
}

func sequenceReserve(ctx context.Context, e *Env) {
	clients := []*holdfast.Space{e.Client(), e.Client()}
	const n, size = 20, 7
	firsts := make([]uint64, n)
	together(n, func(i int) { firsts[i] = must(clients[i%2].Sequence("q").Reserve(ctx, size)) })
	slices.Sort(firsts)
	for i := range firsts[1:] {
		want(firsts[i]+size <= firsts[i+1], "rows of %d begin at %d and %d", size, firsts[i], firsts[i+1])
	}
	next := must(clients[0].Sequence("q").Next(ctx))
	want(next >= firsts[n-1]+size, "after the row from %d came %d", firsts[n-1], next)
}

func sequenceCurrent(ctx context.Context, e *Env) {
	a, b := e.Client().Sequence("q"), e.Client().Sequence("q")
	want(must(a.Current(ctx)) == 1, "a new sequence is at %d", must(a.Current(ctx)))
	must(a.Reserve(ctx, 5))
	for range 2 {
		want(must(b.Current(ctx)) == 6, "after 5 numbers it is at %d", must(b.Current(ctx)))
	}
	want(must(b.Reserve(ctx, 1)) == 6, "Current took a number")
}

func sequenceNeverWraps(ctx context.Context, e *Env) {
	q := e.Client().Sequence("q", holdfast.StartAt(math.MaxUint64-9), holdfast.BlockSize(4))
	last := uint64(math.MaxUint64 - 10)
	for range 10 {
		n, err := q.Next(ctx)
		if err != nil {
			refused(err, holdfast.ErrExhausted, "Next near the end")
			break
		}
		want(n > last, "after %d came %d", last, n)
		last = n
	}
	want(last >= math.MaxUint64-2, "the sequence ended at %d", last)
	for range 3 {
		refused(second(q.Next(ctx)), holdfast.ErrExhausted, "Next at the end")
		refused(second(e.Client().Sequence("q").Reserve(ctx, 100)), holdfast.ErrExhausted, "Reserve at the end")
	}
}

func sequenceDelete(ctx context.Context, e *Env) {
	a, b := e.Client().Sequence("q"), e.Client().Sequence("q")
	must(a.Reserve(ctx, 5))
	done(a.Delete(ctx))
	want(must(b.Reserve(ctx, 1)) == 1, "a deleted sequence did not begin anew")
}

func sequenceBad(ctx context.Context, e *Env) {
	s := e.Client()
	refused(second(s.Sequence("q", holdfast.BlockSize(0)).Next(ctx)), fs.ErrInvalid, "Next with a batch of 0")
	refused(second(s.Sequence("q", holdfast.StartAt(0)).Next(ctx)), fs.ErrInvalid, "Next with a start of 0")
	refused(second(s.Sequence("q").Reserve(ctx, 0)), fs.ErrInvalid, "Reserve of 0")
	want(must(s.Sequence("q").Reserve(ctx, 1)) == 1, "a refused call took a number")
}
