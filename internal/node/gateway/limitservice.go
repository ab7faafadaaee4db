package gateway

import (
	"cmp"
	"context"
	"io/fs"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/limit"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Limits is pb.LimitService.
type Limits struct {
	*Gateway
}

// Ask asks a limiter. A cost that it can never allow is an error: a caller that
// waited for it would wait for ever.
func (g *Gateway) Ask(ctx context.Context, op string, r *driver.LimitRequest) (driver.LimitReply, *pb.Header, error) {
	if err := checkAsk(r); err != nil {
		return driver.LimitReply{}, nil, Named(err, op, r.Name)
	}
	run := g.do
	if r.Op == driver.LimitPeek {
		run = g.peek
	}
	res, _, err := run(ctx, core.Command{Op: core.OpLimit, Name: r.Name, Ask: convert.Ask(r)})
	reply := convert.LimitReply(r, res.Limit)
	if d := &reply.Decision; err == nil && d.RetryAfter == limit.Never {
		err = never(d.Asked, d.Limit)
	}
	if err != nil {
		return driver.LimitReply{}, nil, Named(err, op, r.Name)
	}
	return reply, g.Header(ctx, res.Revision), nil
}

// peek is read for what a limiter would decide now, at the leader's time.
func (g *Gateway) peek(ctx context.Context, c core.Command) (r core.Result, now int64, err error) {
	ns := callerOf(ctx).namespace
	err = g.look(ctx, func(m *core.Machine, at int64) { r, now = m.Peek(ns, &c, at), at })
	if err == nil && r.Code == core.CodeUnsupported { // the group knows no date before its first command: this one tells it
		return g.doAnew(ctx, c)
	}
	if err == nil {
		err = refusal(&r, now, nil)
	}
	return r, now, err
}

// checkAsk refuses what makes no sense before anything is made or taken.
func checkAsk(r *driver.LimitRequest) error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	if bad := badName(r.Key, MaxName); r.Key != "" && bad != "" {
		return Invalid("", "key: %s", bad)
	}
	if r.Cost < 0 {
		return Invalid("", "a cost of %d is negative: to give something back, reserve and settle", r.Cost)
	}
	if r.Rate == (limit.Rate{}) {
		return nil
	}
	if err := r.Rate.Check(); err != nil {
		return BadRate(err)
	}
	if asks := r.Op == driver.LimitTake || r.Op == driver.LimitPeek; asks && r.Cost > r.Rate.Limit() {
		return never(r.Cost, r.Rate.Limit())
	}
	return nil
}

func never(cost, most int64) error {
	return Invalid("", "a cost of %d can never be taken: the most is %d; ask for less, or set another rate", cost, most)
}

// BadRate refuses a rate for what package limit says of it.
func BadRate(err error) error {
	text := strings.TrimSuffix(strings.TrimPrefix(err.Error(), "limit: "), ": "+fs.ErrInvalid.Error())
	return Invalid("", "rate: %s", text)
}

// rateOf is the rate of a request; without one it is that of the limiter.
func rateOf(m *pb.Rate) (r limit.Rate, err error) {
	if m == nil {
		return r, nil
	}
	per, err1 := CheckSpan("rate: a per_ms", m.PerMs, limit.MaxPer)
	offset, err2 := CheckOffset(m.OffsetMinutes)
	algorithm, err3 := algorithmOf(m)
	if err := cmp.Or(err1, err2, err3); err != nil {
		return r, err
	}
	r = limit.Rate{Count: m.Count, Per: per, Burst: m.Burst, Initial: m.Initial, Algorithm: algorithm, Every: limit.Period(m.Every), Offset: offset}
	if err := r.Check(); err != nil { // a count of 0 would be a rate that is not said
		return r, BadRate(err)
	}
	return r, nil
}

// CheckOffset turns how far a calendar is east of UTC into a duration.
func CheckOffset(minutes int64) (time.Duration, error) {
	const most = 18 * 60
	if minutes < -most || minutes > most {
		return 0, Invalid("", "rate: an offset of %d minutes is out of range: give %d to %d", minutes, -most, most)
	}
	return time.Duration(minutes) * time.Minute, nil
}

func algorithmOf(m *pb.Rate) (limit.Algorithm, error) {
	switch {
	case m.Algorithm < 0 || m.Algorithm > pb.Algorithm_ALGORITHM_SLIDING_LOG:
		return 0, Invalid("", "rate: the algorithm %d is unknown", m.Algorithm)
	case m.Every < 0 || m.Every > pb.Period_PERIOD_YEAR:
		return 0, Invalid("", "rate: the period %d is unknown", m.Every)
	case m.Algorithm == pb.Algorithm_ALGORITHM_UNSPECIFIED:
		return limit.GCRA, nil
	}
	return limit.Algorithm(m.Algorithm - 1), nil
}

// CostOf is what to take: 1, unless the caller gives another number above 0.
func CostOf(cost *int64) (int64, error) { return AtLeastOne("cost", cost) }

// PeekCost is what to look at: 1, unless the caller says.
func PeekCost(cost *int64) int64 {
	if cost == nil {
		return 1
	}
	return *cost
}

// decisionOf is a decision as callers get it.
func decisionOf(d *limit.Decision) *pb.Decision {
	return &pb.Decision{
		Allowed: d.Allowed, Remaining: d.Remaining, Limit: d.Limit,
		RetryAfterMs: RoundUp(d.RetryAfter), ResetAfterMs: RoundUp(d.ResetAfter),
	}
}

// RoundUp is a time in milliseconds after which a caller is not early.
func RoundUp(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// taking is a request for a cost.
func taking(name, key string, cost *int64, rate *pb.Rate) (*driver.LimitRequest, error) {
	n, err1 := CostOf(cost)
	said, err2 := rateOf(rate)
	return &driver.LimitRequest{Name: name, Key: key, Cost: n, Rate: said}, cmp.Or(err1, err2)
}

func (s Limits) Allow(ctx context.Context, r *pb.LimitAllowRequest) (*pb.LimitAllowResponse, error) {
	in, err := taking(r.Name, r.Key, r.Cost, r.Rate)
	if err != nil {
		return nil, Named(err, "allow", r.Name)
	}
	reply, h, err := s.Ask(ctx, "allow", in)
	if err != nil {
		return nil, err
	}
	return &pb.LimitAllowResponse{Header: h, Decision: decisionOf(&reply.Decision)}, nil
}

func (s Limits) Peek(ctx context.Context, r *pb.LimitPeekRequest) (*pb.LimitPeekResponse, error) {
	reply, h, err := s.peek(ctx, "peek", r.Name, r.Key, PeekCost(r.Cost), r.Rate)
	if err != nil {
		return nil, err
	}
	return &pb.LimitPeekResponse{Header: h, Decision: decisionOf(&reply.Decision)}, nil
}

func (s Limits) Available(ctx context.Context, r *pb.LimitAvailableRequest) (*pb.LimitAvailableResponse, error) {
	reply, h, err := s.peek(ctx, "available", r.Name, r.Key, 0, r.Rate)
	if err != nil {
		return nil, err
	}
	return &pb.LimitAvailableResponse{Header: h, Available: reply.Decision.Remaining}, nil
}

func (s Limits) peek(ctx context.Context, op, name, key string, cost int64, rate *pb.Rate) (driver.LimitReply, *pb.Header, error) {
	said, err := rateOf(rate)
	if err != nil {
		return driver.LimitReply{}, nil, Named(err, op, name)
	}
	return s.Ask(ctx, op, &driver.LimitRequest{Name: name, Key: key, Op: driver.LimitPeek, Cost: cost, Rate: said})
}

func (s Limits) Reserve(ctx context.Context, r *pb.LimitReserveRequest) (*pb.LimitReserveResponse, error) {
	in, err := taking(r.Name, r.Key, r.Cost, r.Rate)
	if err != nil {
		return nil, Named(err, "reserve", r.Name)
	}
	reply, h, err := s.ReserveCost(ctx, "reserve", in, r.MaxWaitMs)
	if err != nil {
		return nil, err
	}
	return &pb.LimitReserveResponse{Header: h, Decision: decisionOf(&reply.Decision), Reservation: ReservationText(in, &reply.Reservation)}, nil
}

// ReserveCost asks for a cost that may be taken up to wait, in milliseconds, before it
// is there.
func (g *Gateway) ReserveCost(ctx context.Context, op string, r *driver.LimitRequest, wait int64) (driver.LimitReply, *pb.Header, error) {
	var err error
	if r.Wait, err = CheckSpan("a max_wait_ms", wait, limit.MaxPer); err != nil {
		return driver.LimitReply{}, nil, Named(err, op, r.Name)
	}
	return g.Ask(ctx, op, r)
}

func (s Limits) Settle(ctx context.Context, r *pb.LimitSettleRequest) (*pb.LimitSettleResponse, error) {
	if r.Cost == nil {
		return nil, Named(Invalid("", "the cost is missing: give what it did cost, or cancel"), "settle", r.Name)
	}
	h, err := s.settle(ctx, "settle", r.Name, r.Key, r.Reservation, *r.Cost)
	if err != nil {
		return nil, err
	}
	return &pb.LimitSettleResponse{Header: h}, nil
}

func (s Limits) Cancel(ctx context.Context, r *pb.LimitCancelRequest) (*pb.LimitCancelResponse, error) {
	h, err := s.settle(ctx, "cancel", r.Name, r.Key, r.Reservation, 0)
	if err != nil {
		return nil, err
	}
	return &pb.LimitCancelResponse{Header: h}, nil
}

func (s Limits) settle(ctx context.Context, op, name, key, reservation string, cost int64) (*pb.Header, error) {
	v, err := readReservation(name, key, reservation)
	if err != nil {
		return nil, Named(err, op, name)
	}
	_, h, err := s.Ask(ctx, op, &driver.LimitRequest{Name: name, Key: key, Op: driver.LimitSettle, Cost: cost, Reservation: v})
	return h, err
}

func (s Limits) SetRate(ctx context.Context, r *pb.LimitSetRateRequest) (*pb.LimitSetRateResponse, error) {
	rate, err := rateOf(r.Rate)
	if r.Rate == nil {
		err = NoRate()
	}
	if err != nil {
		return nil, Named(err, "set rate", r.Name)
	}
	_, h, err := s.Ask(ctx, "set rate", &driver.LimitRequest{Name: r.Name, Op: driver.LimitSetRate, Rate: rate})
	if err != nil {
		return nil, err
	}
	return &pb.LimitSetRateResponse{Header: h}, nil
}

// NoRate refuses to set a rate that is not said.
func NoRate() error { return Invalid("", "the rate is missing: give the one to set") }

func (s Limits) Reset(ctx context.Context, r *pb.LimitResetRequest) (*pb.LimitResetResponse, error) {
	_, h, err := s.Ask(ctx, "reset", &driver.LimitRequest{Name: r.Name, Key: r.Key, Op: driver.LimitReset})
	if err != nil {
		return nil, err
	}
	return &pb.LimitResetResponse{Header: h}, nil
}

func (s Limits) Delete(ctx context.Context, r *pb.DeleteRequest) (*pb.DeleteResponse, error) {
	return s.Remove(ctx, core.Limiter, r)
}
