package natshold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// Programs that look once each and leave get the lock of one that is gone: the age that
// the server tells is enough, whatever the skew of clocks is set to. Not before its holder
// knows.
func TestTriesOfManyPrograms(t *testing.T) {
	server := services.NATS(t)
	nc := connect(t, server.URL())
	gone := must(holdfast.New(sweeper(t, nc, "b")))(t)
	h := short(t, gone, "m")
	nc.Close()
	eventually(t, "nobody gets the lock", func() bool {
		d := sweeperAt(t, server.URL()+"/b")
		s := must(holdfast.New(d))(t)
		defer func() { check(t, s.Close()) }()
		err := second(s.Mutex("m").TryAcquire(t.Context()))
		if err == nil && h.Err() == nil {
			t.Error("granted while its holder believes")
		}
		return !errors.Is(err, holdfast.ErrHeld)
	})
}

// A change that was made is not told as one that was not when the bucket is found
// broken right after it.
func TestDoneThoughBroken(t *testing.T) {
	server := services.NATS(t)
	s := open(t, server.URL()+"/b")
	c := s.Counter("c")
	must(c.Add(t.Context(), 1))(t)
	js := streams(t, connect(t, server.URL()))
	alter(t, js, "KV_b", func(c *nats.StreamConfig) { c.MaxAge = time.Hour })
	var err error
	sum := int64(1)
	eventually(t, "the setting is not found", func() bool {
		_, err = c.Add(t.Context(), 1)
		sum++
		return err != nil
	})
	if holdfast.NotDone(err) {
		t.Errorf("the sum is %d, and the last Add says that it was not done: %v", sum, err)
	}
}

// Two accounts of a server have a bucket of the same name each: a waiter in one is none
// in the other.
func TestAccountsWaitApart(t *testing.T) {
	server := services.NATS(t, services.Setting("accounts", `{
		A: {jetstream: enabled, users: [{user: a, password: secret}]}
		B: {jetstream: enabled, users: [{user: b, password: secret}]}}`))
	a, b := open(t, as(server.URL(), "a")), open(t, as(server.URL(), "b"))
	held := must(a.Mutex("x").Acquire(t.Context()))(t)
	got := make(chan error)
	go func() { got <- second(a.Mutex("x").Acquire(t.Context())) }()
	eventually(t, "it does not wait", func() bool { return must(a.Inspect(t.Context(), "x"))(t).Waiting > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := second(b.Mutex("x").Acquire(ctx)); err != nil {
		t.Errorf("free in the other account: %v", err)
	}
	check(t, held.Release())
	check(t, <-got)
}
