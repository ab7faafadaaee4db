package kthtrip

import (
	"errors"
	"io/fs"
	"strconv"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// onData are the operations on what is not held.
var onData = []Operation{
	{"count", driver.FeatureCounter, func(x *trial) {
		name := x.counter(7)
		x.arm()
		is, err := x.client().Counter(name).Add(x.ctx, 5)
		if x.said(err) == nil && is != 12 {
			x.broken("7 and 5 are told to be %d", is)
		}
		x.counted(name, err, 7, 12)
	}},
	{"first count", driver.FeatureCounter, func(x *trial) {
		name := x.prefix + "counter"
		x.arm()
		_, err := x.client().Counter(name).Add(x.ctx, 5)
		x.counted(name, x.said(err), 0, 5)
	}},
	{"load", driver.FeatureCounter, func(x *trial) {
		name := x.counter(7)
		x.arm()
		is, err := x.client().Counter(name).Load(x.ctx)
		if x.said(err) == nil && is != 7 {
			x.broken("7 is told to be %d", is)
		}
		x.counted(name, nil, 7, 7)
	}},
	{"compare and swap", driver.FeatureCounter, func(x *trial) {
		name := x.counter(7)
		x.arm()
		swapped, err := x.client().Counter(name).CompareAndSwap(x.ctx, 7, 9)
		if x.said(err) == nil && !swapped {
			x.broken("7 was not swapped for 9, since it is told to be something else")
		}
		x.counted(name, err, 7, 9)
	}},
	{"sequence", driver.FeatureSequence, func(x *trial) {
		name := x.prefix + "sequence"
		first, err := x.other().Sequence(name).Reserve(x.ctx, 3)
		x.must("reserve", err)
		x.arm()
		got, err := x.client().Sequence(name).Reserve(x.ctx, 2)
		next, late := x.other().Sequence(name).Reserve(x.ctx, 1)
		x.must("reserve", late)
		if x.said(err) == nil && (got < first+3 || next < got+2) || holdfast.NotDone(err) && next != first+3 {
			x.broken("the numbers %d to %d were given, then 2 from %d on (%v), then %d", first, first+2, got, err, next)
		}
		x.must("delete", x.other().Sequence(name).Delete(x.ctx))
	}},
	{"put", driver.FeatureKV, func(x *trial) {
		key, _ := x.key("old")
		x.arm()
		_, err := x.client().KV().Put(x.ctx, key, []byte("new"))
		x.kept(key, x.said(err), "old", "new")
	}},
	{"create", driver.FeatureKV, func(x *trial) {
		key := x.prefix + "key"
		x.arm()
		_, err := x.client().KV().Create(x.ctx, key, []byte("new"))
		x.kept(key, x.said(err), "", "new")
	}},
	{"swap of a key", driver.FeatureKV, func(x *trial) {
		key, rev := x.key("old")
		x.arm()
		_, err := x.client().KV().CompareAndSwap(x.ctx, key, rev, []byte("new"))
		x.kept(key, x.said(err), "old", "new")
	}},
	{"delete of a key", driver.FeatureKV, func(x *trial) {
		key, _ := x.key("old")
		x.arm()
		_, err := x.client().KV().Delete(x.ctx, key)
		x.kept(key, x.said(err), "old", "")
	}},
	{"get", driver.FeatureKV, func(x *trial) {
		key, _ := x.key("old")
		x.arm()
		e, err := x.client().KV().Get(x.ctx, key)
		if x.said(err) == nil && string(e.Value) != "old" {
			x.broken("the key is told to be %q", e.Value)
		}
		x.kept(key, nil, "old", "old")
	}},
	{"range", driver.FeatureKV, func(x *trial) {
		key, _ := x.key("old")
		x.arm()
		page, err := x.client().KV().Page(x.ctx, x.prefix)
		if x.said(err) == nil && (len(page.Entries) != 1 || page.Entries[0].Key != key) {
			x.broken("one key is told to be %+v", page.Entries)
		}
		x.kept(key, nil, "old", "old")
	}},
	{"transaction", driver.FeatureTxn, func(x *trial) {
		key, rev := x.key("old")
		x.arm()
		r, err := x.client().KV().Txn(x.ctx, holdfast.Txn{If: []holdfast.Compare{holdfast.ModifiedAt(key, rev)}, Then: []holdfast.Op{holdfast.PutOp(key, []byte("new"))}})
		if x.said(err) == nil && !r.OK {
			x.broken("the condition is told to be untrue")
		}
		x.kept(key, err, "old", "new")
	}},
	{"count down", driver.FeatureLatch, func(x *trial) {
		name := x.prefix + "latch"
		_, err := x.other().Latch(name, 9).CountDown(x.ctx, 2)
		x.must("count down", err)
		x.arm()
		left, err := x.client().Latch(name, 9).CountDown(x.ctx, 3)
		if x.said(err) == nil && left != 4 {
			x.broken("3 of 7 leave %d", left)
		}
		is, look := x.other().Latch(name, 9).Left(x.ctx)
		x.must("left", look)
		x.told(err, strconv.FormatInt(is, 10), "7", "4")
		x.must("delete", x.other().Latch(name, 0).Delete(x.ctx))
	}},
	{"wait for a latch", driver.FeatureLatch, waitForLatch},
	{"watch", driver.FeatureWatch, func(x *trial) { watch(x, false) }},
	{"watch that has begun", driver.FeatureWatch, func(x *trial) { watch(x, true) }},
}

// counter makes a counter.
func (x *trial) counter(value int64) string {
	name := x.prefix + "counter"
	x.must("store", x.other().Counter(name).Store(x.ctx, value))
	return name
}

// counted: a counter is what the operation said.
func (x *trial) counted(name string, err error, before, after int64) {
	is, look := x.other().Counter(name).Load(x.ctx)
	x.must("load", look)
	x.told(err, strconv.FormatInt(is, 10), strconv.FormatInt(before, 10), strconv.FormatInt(after, 10))
	if err := x.other().Counter(name).Delete(x.ctx); !errors.Is(err, fs.ErrNotExist) {
		x.must("delete", err)
	}
}

// key makes a key.
func (x *trial) key(value string) (string, holdfast.Revision) {
	rev, err := x.other().KV().Put(x.ctx, x.prefix+"key", []byte(value))
	x.must("put", err)
	return x.prefix + "key", rev
}

// kept: a key is what the operation said; "" is absent.
func (x *trial) kept(key string, err error, before, after string) {
	e, look := x.other().KV().Get(x.ctx, key)
	if !errors.Is(look, fs.ErrNotExist) {
		x.must("get", look)
	}
	x.told(err, string(e.Value), before, after)
	_, err = x.other().KV().Delete(x.ctx, key)
	x.must("delete", err)
}

// waitForLatch: a wait ends when the latch opens.
func waitForLatch(x *trial) {
	name := x.prefix + "latch"
	_, err := x.other().Latch(name, 2).CountDown(x.ctx, 1)
	x.must("count down", err)
	x.warm()
	x.arm()
	ended := make(chan error, 1)
	go func() { ended <- x.client().Latch(name, 2).Wait(x.ctx) }()
	within(x.ctx, TTL, func() bool {
		r, err := x.other().Inspect(x.ctx, name)
		return len(ended) > 0 || err == nil && len(r.Waiters) > 0
	})
	_, err = x.other().Latch(name, 2).CountDown(x.ctx, 1)
	x.must("count down", err)
	_ = x.said(<-ended)
	x.must("delete", x.eventually(func() error { return x.other().Latch(name, 0).Delete(x.ctx) }))
}

// watch: a watch that began tells of what comes, or that it missed something, or
// ends with an error. later: it is disturbed only when it has begun.
func watch(x *trial, later bool) {
	if !later {
		x.arm()
	}
	told := errors.New("it ended without an error")
	for ev, err := range x.client().Watch(x.ctx, x.prefix, 0) {
		if err == nil && ev.Verb == driver.VerbReady {
			x.change(later)
			continue
		}
		if told = err; err != nil || ev.Verb == driver.VerbResync || ev.KV != nil && string(ev.KV.Value) == "last" {
			break
		}
	}
	_ = x.said(told)
	_, err := x.other().KV().Delete(x.ctx, x.prefix+"key")
	x.must("delete", err)
}

// change has something to watch.
func (x *trial) change(disturbed bool) {
	if disturbed {
		x.arm()
		_, _ = x.client().KV().Put(x.ctx, x.prefix+"key", []byte("first")) // fails if it is what is disturbed
	}
	_, err := x.other().KV().Put(x.ctx, x.prefix+"key", []byte("last"))
	x.must("put", err)
}
