package drivertest_test

import (
	"context"
	"io/fs"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// handle is a hold's way back into the engine.
type handle struct {
	t   *toy
	c   *toyClaim
	ctx context.Context // of its Acquire
}

func (h *handle) Release(ctx context.Context) error {
	e := h.t.e
	if e.has("deaf release") {
		ctx = context.WithoutCancel(ctx)
	}
	if err := h.t.reach(ctx); err != nil {
		return err
	}
	if e.has("release needs its context") && h.ctx.Err() != nil {
		return h.ctx.Err()
	}
	var err error
	e.do(func() { err = h.release() })
	return err
}

func (h *handle) release() error {
	e, c := h.t.e, h.c
	switch {
	case !slices.Contains(e.claims, c) || !c.tail.IsZero():
		return refusal(driver.ErrLost, "it had ended")
	case e.has("release forgets"):
		return nil
	case !c.until.IsZero() && e.has("revoked until its deadline"):
		return driver.ErrLost
	}
	e.dropNext[c.Wants[0].Name] = e.has("release hits the next")
	revoked := !c.until.IsZero()
	e.free(c, false, nil)
	if revoked {
		return driver.ErrLost
	}
	return nil
}

func (h *handle) Change(ctx context.Context, ch driver.Change) (driver.Grant, error) {
	if err := h.t.reach(ctx); err != nil {
		return driver.Grant{}, err
	}
	if ch.Upgrade {
		return h.upgrade(ctx, ch)
	}
	var err error
	h.t.e.do(func() { err = h.change(ch) })
	if err != nil {
		return driver.Grant{}, err
	}
	return h.t.grantOf(ctx, h.c), nil
}

func (h *handle) change(ch driver.Change) error {
	e, c := h.t.e, h.c
	switch {
	case !slices.Contains(e.claims, c):
		return refusal(driver.ErrLost, "it had ended")
	case ch.Downgrade:
		h.downgrade(ch)
	case ch.Extend > 0:
		h.extend(ch.Extend)
	case ch.Proclaim != nil && !e.has("proclaim forgets"):
		c.Value = *ch.Proclaim
		c.changes++
		e.rev++
		if !e.has("proclaim untold") {
			e.emit(c, "proclaimed")
		}
	case ch.HandOver != "":
		return e.handOver(c, ch.HandOver)
	}
	return nil
}

func (h *handle) downgrade(ch driver.Change) {
	e, c := h.t.e, h.c
	c.Lost = ch.Lost
	c.Wants[0].Mode = driver.Shared
	if e.has("downgrade takes a token") {
		e.rev++
		c.token = driver.Token(e.rev)
	}
}

func (h *handle) extend(d time.Duration) {
	e, c := h.t.e, h.c
	if end := time.Now().Add(d); end.After(c.end) || e.has("extend moves back") {
		c.end = end
	}
	if e.has("extend forgets") {
		e.free(c, false, nil)
	}
}

// handOver moves the chosen candidate to the head of the queue.
func (e *engine) handOver(c *toyClaim, owner string) error {
	_, waiters := e.split(c.Wants[0].Name)
	i := slices.IndexFunc(waiters, func(w *toyClaim) bool { return w.Spec.Owner == owner })
	switch {
	case e.has("hands over to anybody"):
		i = max(i, 0)
	case i < 0:
		return refusal(fs.ErrNotExist, "nobody waits as %q", owner)
	}
	chosen := waiters[i]
	if !e.has("hands over to the next") {
		e.drop(chosen)
		e.claims = slices.Insert(e.claims, 0, chosen)
	}
	e.free(c, false, nil)
	return nil
}

func (h *handle) upgrade(ctx context.Context, ch driver.Change) (driver.Grant, error) {
	e := h.t.e
	up := &toyClaim{Request: h.c.Request, session: h.c.session, ctx: ctx, upgrade: h.c, since: time.Now(), ready: make(chan struct{})}
	up.Wants = slices.Clone(h.c.Wants)
	up.Wants[0].Mode, up.Lost, up.Waiting = driver.Exclusive, ch.Lost, nil
	var err error
	e.do(func() {
		second := slices.ContainsFunc(e.claims, func(c *toyClaim) bool {
			return c.token == 0 && c.upgrade != nil && c.want(up.Wants[0].Name) != nil
		})
		if second && !e.has("second upgrader waits") {
			err = refusal(driver.ErrDeadlock, "another reader is upgrading; release and begin anew")
			return
		}
		e.claims = append(e.claims, up)
	})
	if err != nil {
		return driver.Grant{}, err
	}
	if err := h.t.await(ctx, up); err != nil {
		return driver.Grant{}, err
	}
	return h.t.grantOf(ctx, up), nil
}
