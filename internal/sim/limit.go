package sim

import (
	"fmt"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
	"github.com/holdfast-io/holdfast/limit"
)

// limitRate never refills while a simulation lasts, so that every decision is a number
// of its own.
var limitRate = limit.Rate{Algorithm: limit.FixedWindow, Count: 1_000_000, Per: limit.MaxPer}

// limit takes one from a limiter. Each epoch has its own: a restore brings back what one
// had decided before.
func (k *client) limit() {
	name := fmt.Sprintf("limit-%d", k.c.check.epoch())
	k.submit(&op{name: name}, core.Command{Op: core.OpLimit, Name: name, Ask: &core.LimitAsk{Op: core.LimitTake, Rate: limitRate, Cost: 1}})
}

// decisions are what a limiter has answered.
type decisions struct {
	taken  map[int64]bool // what was left after each
	most   int64          // how many were taken when the last of those was
	unsure int64          // what may have been taken besides
}

// decided: every decision is made once, however often it was asked for.
func (k *checker) decided(o *op, ok bool) {
	d := k.limits[o.name]
	if d == nil {
		d = &decisions{taken: map[int64]bool{}}
		k.limits[o.name] = d
	}
	switch {
	case ok && k.epochOf(o.call.Result.Revision) != o.epoch: // the session has outlived a restore, and may have been decided before it, too
		d.unsure++
	case ok:
		left := o.call.Result.Limit.Decision.Remaining
		if !o.call.Result.OK || d.taken[left] {
			k.c.violate("%s: %+v is answered twice, or refused", o.name, o.call.Result.Limit.Decision)
		}
		d.taken[left] = true
		d.most = max(d.most, limitRate.Count-left)
		k.c.res.Decisions++
	case o.call.Outcome == session.Unknown:
		d.unsure++
	}
}

// limited: nothing was taken that nobody asked for, or twice.
func (k *checker) limited() {
	for name, d := range k.limits {
		if all := int64(len(d.taken)) + d.unsure; d.most > all {
			k.c.violate("%s has given %d, with %d acknowledged and %d uncertain", name, d.most, len(d.taken), d.unsure)
		}
	}
}
