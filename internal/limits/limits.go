// Package limits decides requests to limiters for engines that keep the state of
// a key and let it be swapped.
package limits

import (
	"io/fs"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// Agree is the rate to decide by: that of the limiter, or of r if the limiter
// is new. It refuses a rate that differs.
func Agree(has limit.Rate, exists bool, r *driver.LimitRequest) (limit.Rate, error) {
	said := r.Rate.Count != 0
	switch {
	case r.Op == driver.LimitSetRate || said && !exists:
		return r.Rate, nil
	case !exists:
		return has, driver.Errorf("", r.Name, fs.ErrNotExist, "there is no such limiter: give its rate to make it")
	case said && !has.Equal(r.Rate):
		return has, driver.Errorf("", r.Name, driver.ErrConflict, "the limiter has the rate %s, not %s: use that, or set another for all", has, r.Rate)
	}
	has.Name = r.Rate.Name
	return has, nil
}

// Decide answers r for a key with this state, in the epoch of its rate, at now. The state that it returns is
// the one to keep; keep is false if it is the old one. What was taken in another epoch cannot be
// given back: it would be what others have taken in this one.
func Decide(rate limit.Rate, epoch uint64, old limit.State, now int64, r *driver.LimitRequest) (s limit.State, reply driver.LimitReply, keep bool) {
	reply.Rate, reply.Now = rate, now
	gone := r.Reservation.Epoch != epoch
	switch s = clone(old); r.Op {
	case driver.LimitTake:
		s, reply.Reservation, reply.Decision = limit.Decide(rate, s, now, limit.Ask{Cost: r.Cost, Wait: r.Wait, Ahead: r.Ahead})
		reply.Reservation.Epoch = epoch
	case driver.LimitPeek:
		reply.Decision = limit.Peek(rate, s, now, r.Cost)
		return old, reply, false
	case driver.LimitSettle:
		if gone && r.Cost < r.Reservation.Cost {
			return old, reply, false
		}
		s = limit.Settle(rate, s, now, r.Reservation, r.Cost)
	case driver.LimitReturn:
		if gone {
			return old, reply, false
		}
		s = limit.Return(rate, s, now, r.Reservation, r.Cost)
	case driver.LimitReset:
		s = limit.Reset(rate, s, now)
	}
	return s, reply, !same(old, s)
}

// clone lets the log be changed.
func clone(s limit.State) limit.State {
	s.Log = append([]limit.Admission(nil), s.Log...)
	return s
}

func same(a, b limit.State) bool {
	if len(a.Log) != len(b.Log) {
		return false
	}
	for i := range a.Log {
		if a.Log[i] != b.Log[i] {
			return false
		}
	}
	return a.At == b.At && a.Part == b.Part && a.Given == b.Given && a.Leased == b.Leased &&
		a.Used == b.Used && a.Before == b.Before && a.Known == b.Known
}
