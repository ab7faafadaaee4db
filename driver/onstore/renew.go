package onstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

func jitter(d time.Duration) time.Duration { return rand.N(d + 1) }

// renew moves the deadline on, and again after a third of the TTL. What fails is
// tried until the deadline.
func (h *hold) renew() {
	if !h.d.begin() {
		return
	}
	defer h.d.work.Done()
	until, _ := h.session.Deadline()
	ctx, cancel := context.WithTimeout(h.life, max(driver.Until(until), 0))
	defer cancel()
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	if h.freed || h.session.Err() != nil {
		return
	}
	err := plain(retry(ctx, endless, func() (progress, error) {
		p, err := h.extend(ctx)
		return p, h.d.passing(err)
	}))
	switch {
	case err == nil:
		h.timer = time.AfterFunc(beat(h.entry.TTL), h.renew)
	case errors.Is(err, driver.ErrLost):
		h.session.End(err)
	case h.d.broken() != nil:
		h.session.End(&driver.Error{Kind: driver.ErrLost, Err: err})
	case h.life.Err() == nil:
		h.d.fault("renew", h.name, err) // the session ends by its deadline
	}
}

// passing is an engine's last word as what may be another one the next time: what
// has to be done before a deadline is tried until then, whatever was refused (no
// room, no right).
func (d *onStore) passing(err error) error {
	if e, ok := err.(*driver.Error); ok && e.Kind != driver.ErrConflict && d.broken() == nil {
		return fmt.Errorf("refused for now: %w", e)
	}
	return err
}

// broken is why the engine cannot be relied on any more; nil: it can.
func (d *onStore) broken() error {
	if f, ok := d.store.(driver.Fallible); ok {
		return f.Broken()
	}
	return nil
}

// extend swaps the entry for one with a later deadline, in its turn.
func (h *hold) extend(ctx context.Context) (progress, error) {
	start := driver.Now()
	next := h.entry
	next.Token = h.token
	if h.direct() {
		revision, err := h.d.swap(ctx, h.key, h.revision, &next)
		return sent, h.extended(start, next, revision, err)
	}
	item, e, err := h.d.readLock(ctx, h.key)
	if err != nil {
		return blind, err
	}
	if e.Holder != h.entry.Holder {
		return looked, final{&driver.Error{Kind: driver.ErrLost, Err: errors.New("another has taken it")}}
	}
	if item.Now != 0 {
		next.Deadline = item.Now + next.TTL
	}
	revision, err := h.d.swap(ctx, h.key, item.Revision, &next)
	return sent, h.extended(start, next, revision, err)
}

// direct reports whether the entry can be swapped without a look at it: its
// revision is known, and no clock is to be read with it.
func (h *hold) direct() bool { return h.revision != 0 && h.entry.Deadline == 0 }

// extended notes how the swap went: after any failure the next one looks first.
func (h *hold) extended(start time.Time, next lockEntry, revision driver.Revision, err error) error {
	if err != nil {
		h.revision = 0
		return err
	}
	h.entry, h.revision = next, revision
	h.session.Extend(start, next.TTL)
	return nil
}

// free gives the lock back: what stays is its last token. It says ErrLost if
// another has it.
func (h *hold) free(ctx context.Context) error { return h.freeAt(ctx, patient) }

func (h *hold) freeAt(ctx context.Context, p pace) error {
	if h.stop != nil {
		h.stop()
	}
	return plain(retry(ctx, p, func() (progress, error) { return h.freeOnce(ctx) }))
}

// freeOnce is one try to give the lock back. The turn is for the try alone: one that pauses between its tries, for a day
// perhaps, keeps no Release waiting.
func (h *hold) freeOnce(ctx context.Context) (progress, error) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return blind, gaveup.Error(ctx, driver.NotDone)
	}
	if h.freed {
		return looked, h.err
	}
	if h.timer != nil {
		h.timer.Stop()
	}
	p, err := h.leaveTombstone(ctx)
	if err == nil || errors.Is(err, driver.ErrLost) {
		h.settle(plain(err))
	}
	return p, h.d.passing(err)
}

// settle is the end of the hold, in its turn.
func (h *hold) settle(err error) {
	h.freed, h.err = true, err
	h.d.mu.Lock()
	delete(h.d.holds, h)
	h.d.mu.Unlock()
	if h.session != nil {
		h.session.End(driver.ErrReleased)
	}
}

// leaveTombstone leaves a tombstone, in its turn.
func (h *hold) leaveTombstone(ctx context.Context) (progress, error) {
	if h.direct() {
		revision := h.revision
		h.revision = 0 // whatever comes of it, the next one looks
		return sent, h.lay(ctx, revision, h.token)
	}
	item, e, err := h.d.readLock(ctx, h.key)
	if err != nil {
		return blind, err
	}
	token := e.token(item.Revision)
	switch {
	case e.Holder == h.entry.Holder && e.Holder != "":
	case h.late != nil && item.Revision == h.late.from: // what comes late is to find another revision
	case e.Holder == "" && h.token != 0 && token == h.token: // our own, with its answer lost
		return looked, nil
	case item.Revision == 0 && h.tombstoned: // and it was swept since
		return looked, nil
	default:
		return looked, final{&driver.Error{Kind: driver.ErrLost, Outcome: driver.NotDone, Err: errors.New("it had ended before")}}
	}
	return sent, h.lay(ctx, item.Revision, token)
}

// lay swaps the tombstone in.
func (h *hold) lay(ctx context.Context, old driver.Revision, token driver.Token) error {
	h.tombstoned = true
	revision, err := h.d.swap(ctx, h.key, old, &lockEntry{Token: token})
	if err == nil {
		h.d.rest(h.key, revision)
	}
	return err
}
