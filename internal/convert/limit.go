package convert

import (
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
)

// Ask is a request to a limiter.
func Ask(r *driver.LimitRequest) *core.LimitAsk {
	return &core.LimitAsk{
		Op: core.LimitOp(r.Op), Key: r.Key, Rate: r.Rate, Cost: r.Cost, Wait: int64(r.Wait), Ahead: int64(r.Ahead), Reservation: r.Reservation,
	}
}

// LimitReply answers r; without an answer there is none. The name of a rate is that
// of the request: it decides nothing, and the machine does not keep it.
func LimitReply(r *driver.LimitRequest, a *core.LimitAnswer) (reply driver.LimitReply) {
	if a == nil {
		return reply
	}
	reply = driver.LimitReply{Decision: a.Decision, Reservation: a.Reservation, Rate: a.Rate, Now: a.Now}
	reply.Rate.Name = r.Rate.Name
	if r.Op == driver.LimitTake || r.Op == driver.LimitPeek {
		reply.Decision.Policy = r.Rate.Name
	}
	return reply
}
