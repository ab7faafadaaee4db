package kthtrip

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// onMany are the operations of several parties, and on several names or keys.
var onMany = []Operation{
	{"pass a barrier", driver.FeatureLatch, passBarrier},
	{"leave a barrier", driver.FeatureLatch, leaveBarrier},
	{"list", "", list},
	{"session info", driver.FeatureSession, func(x *trial) {
		n := x.name(mutexes, "mine")
		s, h := x.session(n)
		x.arm()
		info, err := s.Info(x.ctx)
		if x.said(err) == nil && !slices.Equal(info.Names, []string{n.text}) && x.lasts(h) {
			x.broken("a session that holds %s is told to hold %q", n.text, info.Names)
		}
		x.released(h.Release(), n)
	}},
	{"delete range", driver.FeatureTxn, func(x *trial) { deleteRange(x, 3) }},
	{"delete range in pages", driver.FeatureTxn, func(x *trial) { deleteRange(x, 1001) }},
	{"sweep", driver.FeatureSweep, sweep},
}

const parties = 2

// deleteBarrier: nobody waits at it.
func (x *trial) deleteBarrier(name string) error { return x.other().Barrier(name, 0).Delete(x.ctx) }

// passBarrier: the parties pass together; one that says that it has not come was not
// counted.
func passBarrier(x *trial) {
	name := x.prefix + "barrier"
	x.warm()
	ctx, leave := context.WithCancel(x.ctx)
	defer leave()
	passed := make(chan error, 1)
	go func() { passed <- x.other().Barrier(name, parties).Wait(ctx) }()
	x.must("wait", x.waiter(name))
	x.arm()
	err := x.said(x.client().Barrier(name, parties).Wait(x.ctx))
	if err != nil {
		leave()
	}
	if other := <-passed; err == nil && other != nil {
		x.broken("one party passed, and the other did not: %v", other)
	} else if holdfast.NotDone(err) && other == nil {
		x.broken("the other party passed with one that has not come")
	}
	x.must("delete", x.eventually(func() error { return x.deleteBarrier(name) }))
}

// leaveBarrier: a party that gave up is counted no more as soon as it says so.
func leaveBarrier(x *trial) {
	name := x.prefix + "barrier"
	x.warm()
	ctx, leave := context.WithCancel(x.ctx)
	defer leave()
	left := make(chan error, 1)
	go func() { left <- x.client().Barrier(name, parties).Wait(ctx) }()
	x.must("wait", x.waiter(name))
	x.arm()
	leave()
	err := <-left
	if err == nil {
		x.broken("a party passed alone")
	}
	if errors.Is(err, context.Canceled) {
		x.said(nil) // as it was asked to
	} else {
		x.said(err)
	}
	if holdfast.NotDone(err) && !x.path.Killed() {
		x.must("delete of what was left", x.deleteBarrier(name))
		return
	}
	x.must("delete", x.eventually(func() error { return x.deleteBarrier(name) }))
}

// waiter returns when somebody waits for a name.
func (x *trial) waiter(name string) error {
	return x.eventually(func() error {
		r, err := x.other().Inspect(x.ctx, name)
		if err == nil && len(r.Waiters) == 0 {
			err = errors.New("nobody waits")
		}
		return err
	})
}

// list: all that is held is told, or an error.
func list(x *trial) {
	a, b := x.name(mutexes, "a"), x.name(mutexes, "b")
	holds := []*holdfast.Hold{x.takes(a), x.takes(b)}
	x.arm()
	var names []string
	var err error
	for r, failed := range x.client().List(x.ctx, x.prefix) {
		if err = failed; err == nil && len(r.Holders) > 0 {
			names = append(names, r.Name)
		}
	}
	if errors.Is(err, errors.ErrUnsupported) {
		x.said(nil)
	} else if x.said(err) == nil && !slices.Equal(names, []string{a.text, b.text}) {
		x.broken("%s and %s are told as %q", a.text, b.text, names)
	}
	for _, h := range holds {
		x.must("release", h.Release())
	}
}

// deleteRange: all keys are gone, or what was told as deleted, or none.
func deleteRange(x *trial, n int) {
	x.fill(n)
	x.arm()
	deleted, err := x.client().KV().DeleteRange(x.ctx, x.prefix)
	_ = x.said(err)
	left, look := x.other().KV().DeleteRange(x.ctx, x.prefix)
	x.must("delete range", look)
	if gone := int64(n) - left; err == nil && deleted != int64(n) || deleted > gone {
		x.broken("%d keys are told as deleted, and %d of %d are gone", deleted, gone, n)
	}
	if left > 0 && left < int64(n) && !holdfast.NotDone(err) && err != nil {
		return // some pages were deleted, and it does not say that none was
	}
	x.told(err, strconv.FormatInt(left, 10), strconv.Itoa(n), "0")
}

// fill puts keys, many at a time.
func (x *trial) fill(n int) {
	var ops []holdfast.Op
	for i := range n {
		ops = append(ops, holdfast.PutOp(fmt.Sprintf("%s%05d", x.prefix, i), []byte("value")))
		if len(ops) == 100 || i == n-1 {
			_, err := x.other().KV().Txn(x.ctx, holdfast.Txn{Then: ops})
			x.must("put", err)
			ops = nil
		}
	}
}

// sweep: what is held and what counts stays, whatever becomes of a sweep.
func sweep(x *trial) {
	held, idle := x.name(mutexes, "held"), x.name(mutexes, "idle")
	x.must("release", x.takes(idle).Release())
	hold := x.takes(held)
	x.client()
	x.arm()
	reply, err := x.driver.Sweep(x.ctx, &driver.SweepRequest{Prefix: x.prefix})
	if _ = x.said(err); reply.Removed > 1 {
		x.broken("%d names are told as removed, and one was idle", reply.Removed)
	}
	x.excludes(held, hold)
	if err := hold.Err(); err != nil {
		x.broken("a sweep ended what was held: %v", err)
	}
	x.must("release", hold.Release())
}
