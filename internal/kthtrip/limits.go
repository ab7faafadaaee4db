package kthtrip

import (
	"errors"
	"io/fs"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// rate gives nothing back within a trial: what is left is what was not taken.
var rate = limit.Rate{Count: 10, Per: 100 * time.Hour}

// onLimits are the operations on limiters. Of ten the bystander has taken four.
var onLimits = []Operation{
	{"allow", driver.FeatureLimit, func(x *trial) {
		l := x.limiter()
		x.arm()
		d, err := l.AllowN(x.ctx, "key", 3)
		if x.said(err) == nil && !d.Allowed {
			x.broken("3 of 6 are refused: %+v", d)
		}
		x.leaves(err, "6", "3")
	}},
	{"first allow", driver.FeatureLimit, func(x *trial) {
		x.arm()
		_, err := x.client().Limiter(x.prefix+"limiter", rate).AllowN(x.ctx, "key", 3)
		if x.said(err) != nil && x.available() == "none" {
			return // the limiter itself was not made
		}
		x.leaves(err, "10", "7")
	}},
	{"wait for a limiter", driver.FeatureLimit, func(x *trial) {
		l := x.limiter()
		x.arm()
		x.leaves(x.said(l.WaitN(x.ctx, "key", 3)), "6", "3")
	}},
	{"settle", driver.FeatureLimit, func(x *trial) {
		var r *holdfast.Reservation
		l := x.limiter()
		x.must("reserve", x.eventually(func() (err error) {
			r, err = l.Reserve(x.ctx, "key", 5)
			return err
		}))
		x.arm()
		x.leaves(x.said(r.Settle(x.ctx, 2)), "1", "4")
	}},
	{"reset of a limiter", driver.FeatureLimit, func(x *trial) {
		l := x.limiter()
		x.arm()
		x.leaves(x.said(l.Reset(x.ctx, "key")), "6", "10")
	}},
	{"set rate", driver.FeatureLimit, func(x *trial) {
		l, faster := x.limiter(), rate
		faster.Count = 20
		x.arm()
		x.leaves(x.said(l.SetRate(x.ctx, faster)), "6", "20")
	}},
	{"delete of a limiter", driver.FeatureLimit, func(x *trial) {
		l := x.limiter()
		x.arm()
		x.leaves(x.said(l.Delete(x.ctx)), "6", "none")
	}},
}

// limiter is the subject's side of one that the bystander has made.
func (x *trial) limiter() *holdfast.Limiter {
	_, err := x.other().Limiter(x.prefix+"limiter", rate).AllowN(x.ctx, "key", 4)
	x.must("allow", err)
	return x.client().Limiter(x.prefix+"limiter", rate)
}

// available is what is left, as the bystander sees it; "none": there is no limiter.
func (x *trial) available() string {
	left, err := x.other().Limiter(x.prefix+"limiter", limit.Rate{}).Available(x.ctx, "key")
	if errors.Is(err, fs.ErrNotExist) {
		return "none"
	}
	x.must("available", err)
	return strconv.FormatInt(left, 10)
}

// leaves: what is left is what the operation said.
func (x *trial) leaves(err error, before, after string) {
	x.told(err, x.available(), before, after)
	if err := x.other().Limiter(x.prefix+"limiter", limit.Rate{}).Delete(x.ctx); !errors.Is(err, fs.ErrNotExist) {
		x.must("delete", err)
	}
}
