package gateway

import (
	"cmp"
	"context"
	"math"

	"github.com/holdfast-io/holdfast/internal/core"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Counters is pb.CounterService.
type Counters struct {
	*Gateway
}

// Number is a counter's value, signed or not.
type Number struct {
	Signed   int64
	Unsigned uint64
}

func numberOf(r *core.Result, unsigned bool) Number {
	if unsigned {
		return Number{Unsigned: r.Number}
	}
	return Number{Signed: int64(r.Number)}
}

// Count runs a command on a counter, or reads it.
func (g *Gateway) Count(ctx context.Context, op string, c core.Command) (core.Result, Number, *pb.Header, error) {
	c.Op = core.OpCount
	if err := checkCount(&c); err != nil {
		return core.Result{}, Number{}, nil, Named(err, op, c.Name)
	}
	run := g.do
	if c.Count == core.CountLoad {
		run = g.read
	}
	r, _, err := run(ctx, c)
	if err != nil {
		return r, Number{}, nil, Named(err, op, c.Name)
	}
	return r, numberOf(&r, c.Unsigned), g.Header(ctx, r.Revision), nil
}

func checkCount(c *core.Command) error {
	if (c.Count == core.CountAdd || c.Count == core.CountSub) && !c.Unsigned && c.A > math.MaxInt64 {
		return Invalid(c.Name, "an amount of %d is too large for a signed counter: give less than 2^63", c.A)
	}
	return CheckName(c.Name)
}

func (s Counters) Get(ctx context.Context, r *pb.CounterGetRequest) (*pb.CounterGetResponse, error) {
	_, n, h, err := s.Count(ctx, "get", core.Command{Name: r.Name, Count: core.CountLoad, Unsigned: r.Unsigned})
	if err != nil {
		return nil, err
	}
	return &pb.CounterGetResponse{Header: h, Value: n.Signed, UnsignedValue: n.Unsigned}, nil
}

func (s Counters) Add(ctx context.Context, r *pb.CounterAddRequest) (*pb.CounterAddResponse, error) {
	_, n, h, err := s.Count(ctx, "add", core.Command{Name: r.Name, Count: core.CountAdd, A: AmountOf(r.Amount), Unsigned: r.Unsigned})
	if err != nil {
		return nil, err
	}
	return &pb.CounterAddResponse{Header: h, Value: n.Signed, UnsignedValue: n.Unsigned}, nil
}

func (s Counters) Subtract(ctx context.Context, r *pb.CounterSubtractRequest) (*pb.CounterSubtractResponse, error) {
	_, n, h, err := s.Count(ctx, "subtract", core.Command{Name: r.Name, Count: core.CountSub, A: AmountOf(r.Amount), Unsigned: r.Unsigned})
	if err != nil {
		return nil, err
	}
	return &pb.CounterSubtractResponse{Header: h, Value: n.Signed, UnsignedValue: n.Unsigned}, nil
}

func (s Counters) Set(ctx context.Context, r *pb.CounterSetRequest) (*pb.CounterSetResponse, error) {
	value, err := either("value", r.Unsigned, r.Value, r.UnsignedValue)
	if err != nil {
		return nil, Named(err, "set", r.Name)
	}
	_, _, h, err := s.Count(ctx, "set", core.Command{Name: r.Name, Count: core.CountStore, A: value, Unsigned: r.Unsigned})
	if err != nil {
		return nil, err
	}
	return &pb.CounterSetResponse{Header: h}, nil
}

func (s Counters) CompareAndSet(ctx context.Context, r *pb.CounterCompareAndSetRequest) (*pb.CounterCompareAndSetResponse, error) {
	expected, err1 := either("expected", r.Unsigned, r.Expected, r.UnsignedExpected)
	value, err2 := either("value", r.Unsigned, r.Value, r.UnsignedValue)
	if err := cmp.Or(err1, err2); err != nil {
		return nil, Named(err, "compare and set", r.Name)
	}
	res, n, h, err := s.Count(ctx, "compare and set", core.Command{Name: r.Name, Count: core.CountSwap, Unsigned: r.Unsigned, A: expected, B: value})
	if err != nil {
		return nil, err
	}
	return &pb.CounterCompareAndSetResponse{Header: h, Swapped: res.OK, Value: n.Signed, UnsignedValue: n.Unsigned}, nil
}

// AmountOf is how much to add or subtract: 1, unless the caller says.
func AmountOf(n *uint64) uint64 {
	if n == nil {
		return 1
	}
	return *n
}

// AtLeastOne is a number that is 1, unless the caller gives another one above 0.
func AtLeastOne[N int64 | uint64](field string, n *N) (N, error) {
	switch {
	case n == nil:
		return 1, nil
	case *n <= 0:
		return 0, Invalid("", "a %s of %d makes no sense: give at least 1, or leave it out for 1", field, *n)
	}
	return *n, nil
}

// either is a number as the machine has it. The field that the counter does not
// have must be empty: a caller that fills it means the other kind of counter.
func either(field string, unsigned bool, s int64, u uint64) (uint64, error) {
	switch {
	case unsigned && s != 0:
		return 0, Invalid("", "%s is for signed counters: with unsigned give unsigned_%s", field, field)
	case !unsigned && u != 0:
		return 0, Invalid("", "unsigned_%s is for unsigned counters: give unsigned with it, or %s", field, field)
	case unsigned:
		return u, nil
	}
	return uint64(s), nil
}

func (s Counters) Delete(ctx context.Context, r *pb.DeleteRequest) (*pb.DeleteResponse, error) {
	return s.Remove(ctx, core.Counter, r)
}

// Sequences is pb.SequenceService.
type Sequences struct {
	*Gateway
}

func (s Sequences) Reserve(ctx context.Context, r *pb.ReserveRequest) (*pb.ReserveResponse, error) {
	if err := CheckName(r.Name); err != nil {
		return nil, Named(err, "reserve", r.Name)
	}
	n, err1 := AtLeastOne("count", r.Count)
	_, err2 := AtLeastOne("start", r.Start)
	if err := cmp.Or(err1, err2); err != nil {
		return nil, Named(err, "reserve", r.Name)
	}
	res, _, err := s.do(ctx, core.Command{Op: core.OpReserve, Name: r.Name, A: n, B: r.GetStart()})
	if err != nil {
		return nil, Named(err, "reserve", r.Name)
	}
	return &pb.ReserveResponse{Header: s.Header(ctx, res.Revision), First: res.Number, Count: n}, nil
}

func (s Sequences) Current(ctx context.Context, r *pb.CurrentRequest) (*pb.CurrentResponse, error) {
	if err := CheckName(r.Name); err != nil {
		return nil, Named(err, "current", r.Name)
	}
	if _, err := AtLeastOne("start", r.Start); err != nil {
		return nil, Named(err, "current", r.Name)
	}
	res, _, err := s.read(ctx, core.Command{Op: core.OpReserve, Name: r.Name, B: r.GetStart()})
	if err != nil {
		return nil, Named(err, "current", r.Name)
	}
	return &pb.CurrentResponse{Header: s.Header(ctx, res.Revision), Next: res.Number}, nil
}

func (s Sequences) Delete(ctx context.Context, r *pb.DeleteRequest) (*pb.DeleteResponse, error) {
	return s.Remove(ctx, core.Sequence, r)
}
