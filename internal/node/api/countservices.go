package api

import (
	"cmp"
	"context"
	"math"

	"github.com/holdfast-io/holdfast/internal/core"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// counterService is pb.CounterService.
type counterService struct {
	pb.UnimplementedCounterServiceServer
	*gateway
}

// number is a counter's value, signed or not.
type number struct {
	signed   int64
	unsigned uint64
}

func numberOf(r *core.Result, unsigned bool) number {
	if unsigned {
		return number{unsigned: r.Number}
	}
	return number{signed: int64(r.Number)}
}

// count runs a command on a counter, or reads it.
func (g *gateway) count(ctx context.Context, op string, c core.Command) (core.Result, number, *pb.Header, error) {
	c.Op = core.OpCount
	if err := checkCount(&c); err != nil {
		return core.Result{}, number{}, nil, named(err, op, c.Name)
	}
	run := g.do
	if c.Count == core.CountLoad {
		run = g.read
	}
	r, _, err := run(ctx, c)
	if err != nil {
		return r, number{}, nil, named(err, op, c.Name)
	}
	return r, numberOf(&r, c.Unsigned), g.header(ctx, r.Revision), nil
}

func checkCount(c *core.Command) error {
	if (c.Count == core.CountAdd || c.Count == core.CountSub) && !c.Unsigned && c.A > math.MaxInt64 {
		return invalid(c.Name, "an amount of %d is too large for a signed counter: give less than 2^63", c.A)
	}
	return checkName(c.Name)
}

func (s counterService) Get(ctx context.Context, r *pb.CounterGetRequest) (*pb.CounterGetResponse, error) {
	_, n, h, err := s.count(ctx, "get", core.Command{Name: r.Name, Count: core.CountLoad, Unsigned: r.Unsigned})
	if err != nil {
		return nil, err
	}
	return &pb.CounterGetResponse{Header: h, Value: n.signed, UnsignedValue: n.unsigned}, nil
}

func (s counterService) Add(ctx context.Context, r *pb.CounterAddRequest) (*pb.CounterAddResponse, error) {
	_, n, h, err := s.count(ctx, "add", core.Command{Name: r.Name, Count: core.CountAdd, A: amountOf(r.Amount), Unsigned: r.Unsigned})
	if err != nil {
		return nil, err
	}
	return &pb.CounterAddResponse{Header: h, Value: n.signed, UnsignedValue: n.unsigned}, nil
}

func (s counterService) Subtract(ctx context.Context, r *pb.CounterSubtractRequest) (*pb.CounterSubtractResponse, error) {
	_, n, h, err := s.count(ctx, "subtract", core.Command{Name: r.Name, Count: core.CountSub, A: amountOf(r.Amount), Unsigned: r.Unsigned})
	if err != nil {
		return nil, err
	}
	return &pb.CounterSubtractResponse{Header: h, Value: n.signed, UnsignedValue: n.unsigned}, nil
}

func (s counterService) Set(ctx context.Context, r *pb.CounterSetRequest) (*pb.CounterSetResponse, error) {
	value, err := either("value", r.Unsigned, r.Value, r.UnsignedValue)
	if err != nil {
		return nil, named(err, "set", r.Name)
	}
	_, _, h, err := s.count(ctx, "set", core.Command{Name: r.Name, Count: core.CountStore, A: value, Unsigned: r.Unsigned})
	if err != nil {
		return nil, err
	}
	return &pb.CounterSetResponse{Header: h}, nil
}

func (s counterService) CompareAndSet(ctx context.Context, r *pb.CounterCompareAndSetRequest) (*pb.CounterCompareAndSetResponse, error) {
	expected, err1 := either("expected", r.Unsigned, r.Expected, r.UnsignedExpected)
	value, err2 := either("value", r.Unsigned, r.Value, r.UnsignedValue)
	if err := cmp.Or(err1, err2); err != nil {
		return nil, named(err, "compare and set", r.Name)
	}
	res, n, h, err := s.count(ctx, "compare and set", core.Command{Name: r.Name, Count: core.CountSwap, Unsigned: r.Unsigned, A: expected, B: value})
	if err != nil {
		return nil, err
	}
	return &pb.CounterCompareAndSetResponse{Header: h, Swapped: res.OK, Value: n.signed, UnsignedValue: n.unsigned}, nil
}

// amountOf is how much to add or subtract: 1, unless the caller says.
func amountOf(n *uint64) uint64 {
	if n == nil {
		return 1
	}
	return *n
}

// atLeastOne is a number that is 1, unless the caller gives another one above 0.
func atLeastOne[N int64 | uint64](field string, n *N) (N, error) {
	switch {
	case n == nil:
		return 1, nil
	case *n <= 0:
		return 0, invalid("", "a %s of %d makes no sense: give at least 1, or leave it out for 1", field, *n)
	}
	return *n, nil
}

// either is a number as the machine has it. The field that the counter does not
// have must be empty: whoever fills it means the other kind of counter.
func either(field string, unsigned bool, s int64, u uint64) (uint64, error) {
	switch {
	case unsigned && s != 0:
		return 0, invalid("", "%s is for signed counters: with unsigned give unsigned_%s", field, field)
	case !unsigned && u != 0:
		return 0, invalid("", "unsigned_%s is for unsigned counters: give unsigned with it, or %s", field, field)
	case unsigned:
		return u, nil
	}
	return uint64(s), nil
}

func (s counterService) Delete(ctx context.Context, r *pb.DeleteRequest) (*pb.DeleteResponse, error) {
	return s.remove(ctx, core.Counter, r)
}

// sequenceService is pb.SequenceService.
type sequenceService struct {
	pb.UnimplementedSequenceServiceServer
	*gateway
}

func (s sequenceService) Reserve(ctx context.Context, r *pb.ReserveRequest) (*pb.ReserveResponse, error) {
	if err := checkName(r.Name); err != nil {
		return nil, named(err, "reserve", r.Name)
	}
	n, err1 := atLeastOne("count", r.Count)
	_, err2 := atLeastOne("start", r.Start)
	if err := cmp.Or(err1, err2); err != nil {
		return nil, named(err, "reserve", r.Name)
	}
	res, _, err := s.do(ctx, core.Command{Op: core.OpReserve, Name: r.Name, A: n, B: r.GetStart()})
	if err != nil {
		return nil, named(err, "reserve", r.Name)
	}
	return &pb.ReserveResponse{Header: s.header(ctx, res.Revision), First: res.Number, Count: n}, nil
}

func (s sequenceService) Current(ctx context.Context, r *pb.CurrentRequest) (*pb.CurrentResponse, error) {
	if err := checkName(r.Name); err != nil {
		return nil, named(err, "current", r.Name)
	}
	if _, err := atLeastOne("start", r.Start); err != nil {
		return nil, named(err, "current", r.Name)
	}
	res, _, err := s.read(ctx, core.Command{Op: core.OpReserve, Name: r.Name, B: r.GetStart()})
	if err != nil {
		return nil, named(err, "current", r.Name)
	}
	return &pb.CurrentResponse{Header: s.header(ctx, res.Revision), Next: res.Number}, nil
}

func (s sequenceService) Delete(ctx context.Context, r *pb.DeleteRequest) (*pb.DeleteResponse, error) {
	return s.remove(ctx, core.Sequence, r)
}

// sessionService is pb.SessionService.
type sessionService struct {
	pb.UnimplementedSessionServiceServer
	*gateway
}

func (s sessionService) Open(ctx context.Context, r *pb.OpenRequest) (*pb.OpenResponse, error) {
	o, err := s.open(ctx, r)
	return o, named(err, "open session", "")
}

func (s sessionService) Keep(ctx context.Context, r *pb.KeepRequest) (*pb.KeepResponse, error) {
	ttl, err := checkSpan("a ttl_ms", r.TtlMs, maxTTL)
	if err != nil {
		return nil, named(err, "keep session", "")
	}
	left, err := s.keepLease(ctx, r.LeaseId, ttl)
	if err != nil {
		return nil, named(err, "keep session", "")
	}
	return &pb.KeepResponse{Header: s.header(ctx, s.revision(ctx)), TtlMs: left.Milliseconds()}, nil
}

func (s sessionService) End(ctx context.Context, r *pb.EndRequest) (*pb.EndResponse, error) {
	h, err := s.endLease(ctx, r.LeaseId)
	if err != nil {
		return nil, named(err, "end session", "")
	}
	return &pb.EndResponse{Header: h}, nil
}
