package rest

import (
	"cmp"
	"context"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/limits"
	"github.com/holdfast-io/holdfast/internal/node/gateway"
	"github.com/holdfast-io/holdfast/limit"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// restRate is a rate as people write it, as the flags of holdfast limit.
type restRate struct {
	Rate          string `json:"rate" doc:"what is allowed: 100/1m, or by the calendar 100/hour, /day, /month, /year; absent: the limiter exists and has one"`
	Burst         int64  `json:"burst" doc:"what may happen at once after a pause; 0 or absent: the count of the rate"`
	Initial       int64  `json:"initial" doc:"what a key that was never used may do at once; 0 or absent: the burst"`
	Algorithm     string `json:"algorithm" doc:"gcra, token-bucket, fixed-window, sliding-window or sliding-log; absent: gcra"`
	OffsetMinutes int64  `json:"offset_minutes" doc:"how far the midnight of the calendar is east of UTC"`
}

type restAsk struct {
	restRate
	Key  string `json:"key" doc:"what it is asked about: a user, an address; absent: all together"`
	Cost *int64 `json:"cost" doc:"what to take, all or nothing; absent: 1"`
}

type restEstimate struct {
	restAsk
	MaxWaitMS int64 `json:"max_wait_ms" doc:"take it also if it is there only later, at most so much later; of gcra and token-bucket"`
}

type restDecision struct {
	Allowed      bool  `json:"allowed" doc:"it was taken, or could be"`
	Remaining    int64 `json:"remaining" doc:"what could be taken right after the decision"`
	Limit        int64 `json:"limit" doc:"the most that a key can have at once"`
	RetryAfterMS int64 `json:"retry_after_ms" doc:"when to ask again; if it is allowed: how long to wait before going on"`
	ResetAfterMS int64 `json:"reset_after_ms" doc:"when the key is as if it had never been used"`
}

type restReserved struct {
	restDecision
	Reservation string `json:"reservation,omitempty" doc:"what settle and cancel need, as it is; absent: nothing was taken"`
}

type restReservation struct {
	Key         string `json:"key" doc:"the key that it was reserved for"`
	Reservation string `json:"reservation" doc:"what reserve has answered"`
}

type restSettle struct {
	restReservation
	Cost *int64 `json:"cost" doc:"what it did cost; has to be given"`
}

type restLimitKey struct {
	Key string `json:"key" doc:"the key; absent: that of all together"`
}

// parse is the rate; one that is not said is that of the limiter.
func (r *restRate) parse() (rate limit.Rate, err error) {
	if r.Rate == "" {
		if *r != (restRate{}) {
			return rate, gateway.Invalid("", "burst, initial, algorithm and offset_minutes are of a rate: give it too")
		}
		return rate, nil
	}
	if rate, err = limits.ParseRate(r.Rate); err != nil {
		return rate, gateway.BadRate(err)
	}
	if r.Algorithm != "" {
		if rate.Algorithm, err = limit.ParseAlgorithm(r.Algorithm); err != nil {
			return rate, gateway.BadRate(err)
		}
	}
	rate.Burst, rate.Initial = r.Burst, r.Initial
	if rate.Offset, err = gateway.CheckOffset(r.OffsetMinutes); err != nil {
		return rate, err
	}
	if err := rate.Check(); err != nil { // a count of 0 would be a rate that is not said
		return rate, gateway.BadRate(err)
	}
	return rate, nil
}

func decided(d *limit.Decision) restDecision {
	return restDecision{d.Allowed, d.Remaining, d.Limit, gateway.RoundUp(d.RetryAfter), gateway.RoundUp(d.ResetAfter)}
}

// taking is a request for a cost.
func (in *restAsk) taking(name string) (*driver.LimitRequest, error) {
	cost, err1 := gateway.CostOf(in.Cost)
	rate, err2 := in.parse()
	return &driver.LimitRequest{Name: name, Key: in.Key, Cost: cost, Rate: rate}, cmp.Or(err1, err2)
}

func allow(ctx context.Context, g *gateway.Gateway, name string, in *restAsk) (restDecision, error) {
	r, err := in.taking(name)
	if err != nil {
		return restDecision{}, err
	}
	reply, _, err := g.Ask(ctx, "", r)
	return decided(&reply.Decision), err
}

func peek(ctx context.Context, g *gateway.Gateway, name string, in *restAsk) (restDecision, error) {
	rate, err := in.parse()
	if err != nil {
		return restDecision{}, err
	}
	reply, _, err := g.Ask(ctx, "", &driver.LimitRequest{Name: name, Key: in.Key, Op: driver.LimitPeek, Cost: gateway.PeekCost(in.Cost), Rate: rate})
	return decided(&reply.Decision), err
}

func reserveCost(ctx context.Context, g *gateway.Gateway, name string, in *restEstimate) (restReserved, error) {
	r, err := in.taking(name)
	if err != nil {
		return restReserved{}, err
	}
	reply, _, err := g.ReserveCost(ctx, "", r, in.MaxWaitMS)
	return restReserved{decided(&reply.Decision), gateway.ReservationText(r, &reply.Reservation)}, err
}

func settle(ctx context.Context, g *gateway.Gateway, name string, in *restSettle) (restDone, error) {
	r, err := gateway.Limits{Gateway: g}.Settle(ctx, &pb.LimitSettleRequest{Name: name, Key: in.Key, Reservation: in.Reservation, Cost: in.Cost})
	return restDone{r.GetHeader().GetRevision()}, err
}

func cancel(ctx context.Context, g *gateway.Gateway, name string, in *restReservation) (restDone, error) {
	r, err := gateway.Limits{Gateway: g}.Cancel(ctx, &pb.LimitCancelRequest{Name: name, Key: in.Key, Reservation: in.Reservation})
	return restDone{r.GetHeader().GetRevision()}, err
}

func setRate(ctx context.Context, g *gateway.Gateway, name string, in *restRate) (restDone, error) {
	rate, err := in.parse()
	if err == nil && rate.Count == 0 {
		err = gateway.NoRate()
	}
	if err != nil {
		return restDone{}, err
	}
	_, h, err := g.Ask(ctx, "", &driver.LimitRequest{Name: name, Op: driver.LimitSetRate, Rate: rate})
	return restDone{h.GetRevision()}, err
}

func resetKey(ctx context.Context, g *gateway.Gateway, name string, in *restLimitKey) (restDone, error) {
	_, h, err := g.Ask(ctx, "", &driver.LimitRequest{Name: name, Key: in.Key, Op: driver.LimitReset})
	return restDone{h.GetRevision()}, err
}
