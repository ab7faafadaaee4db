package filehold

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// lock is a lock file that is held.
type lock struct {
	u     *user
	kind  driver.ResourceKind
	mode  driver.Mode
	name  string
	token uint64
	file  openFile
	slot  int
}

// takeLock takes the lock file of a mutex or reader-writer lock.
func (c *client) takeLock(ctx context.Context, u *user, w *driver.Want, r *driver.Request) (*lock, error) {
	n, err := c.e.gates.find(w.Name)
	if err != nil {
		return nil, err
	}
	f, err := c.e.gates.try(ctx, n, w.Mode)
	if err == errBusy && r.Try {
		f, err = c.insist(ctx, n, w)
	}
	if err == errBusy {
		f, err = c.waitFor(ctx, u, n, w, r)
	}
	if err != nil {
		return nil, err
	}
	return c.e.begin(ctx, u, w, f)
}

// insist tries again as long as nobody is known to hold the file: its holder may
// be acquiring, releasing or exiting, or a sweep may look at it. Then it says
// which holders there are.
func (c *client) insist(ctx context.Context, n lockName, w *driver.Want) (openFile, error) {
	for pause := 20 * time.Microsecond; ; pause *= 2 {
		holders, waiting, err := c.e.claimsOf(ctx, w.Name)
		if err != nil {
			return openFile{}, err
		}
		if len(holders) > 0 && holders[0].Kind != w.Kind {
			return openFile{}, conflict(w.Name, holders[0].Kind)
		}
		held := len(holders) > 0
		if !held && pause > 4*time.Millisecond {
			swept, err := c.e.swept(ctx, n)
			if err != nil {
				return openFile{}, err
			}
			pause, held = 20*time.Microsecond, !swept
		}
		if held {
			return openFile{}, &driver.Error{Kind: driver.ErrHeld, Outcome: driver.NotDone, Holders: holders, Waiting: len(waiting)}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return openFile{}, gaveup.Error(ctx, driver.NotDone)
		}
		if f, err := c.e.gates.try(ctx, n, w.Mode); err != errBusy {
			return f, err
		}
	}
}

// swept waits for a sweep that has the file locked, since it has the store's lock
// too, and reports whether there was one: then the file is not the same any more.
func (e *engine) swept(ctx context.Context, n lockName) (bool, error) {
	before, _ := pathIdentity(n.path)
	err := e.locked(ctx, func() error { return nil })
	after, _ := pathIdentity(n.path)
	return after != before || after == identity{}, err
}

// sameKind refuses a want of a name that is held as another kind. One that comes behind another here of its kind does not
// look: where thousands wait, each would read what all of them tell.
func (e *engine) sameKind(ctx context.Context, n lockName, w *driver.Want) error {
	if e.gates.awaited(n, w.Kind) {
		return nil
	}
	holders, _, err := e.claimsOf(ctx, w.Name)
	if err == nil && len(holders) > 0 && holders[0].Kind != w.Kind {
		err = conflict(w.Name, holders[0].Kind)
	}
	return err
}

// waitFor waits in line.
func (c *client) waitFor(ctx context.Context, u *user, n lockName, w *driver.Want, r *driver.Request) (openFile, error) {
	e := c.e
	if err := e.sameKind(ctx, n, w); err != nil {
		return openFile{}, err
	}
	place, err := e.slots.take(&slot{state: slotWaits, kind: core.Kind(w.Kind), mode: core.Mode(w.Mode), since: e.now(), session: u.id, name: w.Name})
	if err != nil {
		return openFile{}, err
	}
	defer e.slots.drop(place)
	t, position, err := e.gates.queue(n, w.Kind, w.Mode)
	if err != nil {
		return openFile{}, err
	}
	if r.Waiting != nil {
		r.Waiting(position)
	}
	select {
	case got := <-t.got:
		return got.file, got.err
	case <-ctx.Done():
		err = gaveup.Error(ctx, driver.NotDone)
	case <-u.session.Done():
		err = ended(u.session)
	case <-c.gone:
		err = errClosed
	}
	e.gates.leave(n, t)
	return openFile{}, err
}

// begin makes a hold of a locked file: the token is drawn when nobody else can.
func (e *engine) begin(ctx context.Context, u *user, w *driver.Want, f openFile) (*lock, error) {
	k := &lock{u: u, kind: w.Kind, mode: w.Mode, name: w.Name, file: f}
	var err error
	if k.token, err = e.token(ctx); err == nil {
		k.slot, err = e.slots.take(&slot{
			state: slotHolds, kind: core.Kind(k.kind), mode: core.Mode(k.mode), token: k.token, since: e.about(), session: u.id, name: k.name,
		})
	}
	if err != nil {
		e.idle.put(f)
		return nil, err
	}
	u.mu.Lock()
	over := u.over
	if !over {
		u.locks[k] = struct{}{}
	}
	u.mu.Unlock()
	if over {
		k.free()
		return nil, ended(u.session)
	}
	if err := k.tell(ctx, core.VerbAcquired); err != nil {
		if k.leave() {
			k.free() // no watcher has heard of it: none has to hear of its end
		}
		return nil, err
	}
	return k, nil
}

// tell writes the event if anybody watches.
func (k *lock) tell(ctx context.Context, v core.Verb) error {
	e := k.u.e
	if e.ctl.load(wWatchers) == 0 {
		return nil
	}
	ev := lockEvent{
		verb: v, kind: core.Kind(k.kind), mode: core.Mode(k.mode), token: k.token, session: k.u.id,
		owner: k.u.session.Spec.Owner, name: k.name,
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return e.locked(ctx, func() error { return e.write(recEvent, appendLockEvent(nil, &ev)) })
}

// release gives the file back, whatever ctx says, which bounds how long it tries to tell that; false: it was
// given back before.
func (k *lock) release(ctx context.Context) bool {
	if !k.leave() {
		return false
	}
	if err := k.tell(ctx, core.VerbReleased); err != nil {
		k.u.e.failed("tell of a release", err)
	}
	k.free()
	return true
}

// leave takes the lock from its session; false: it was given back before.
func (k *lock) leave() bool {
	k.u.mu.Lock()
	defer k.u.mu.Unlock()
	_, held := k.u.locks[k]
	delete(k.u.locks, k)
	return held
}

// free unlocks the file: the kernel wakes its waiter.
func (k *lock) free() {
	k.u.e.slots.drop(k.slot)
	k.u.e.idle.put(k.file)
}

// dropLocks gives back every lock file under a session that ends.
func (u *user) dropLocks() {
	u.mu.Lock()
	u.over = true
	var list []*lock
	for k := range u.locks {
		list = append(list, k)
	}
	u.mu.Unlock()
	for _, k := range list {
		k.release(context.Background())
	}
}

// found is a slot of a living process.
type found struct {
	slot
	owner, meta string
}

// look for the slots of all living processes that keep wants.
func (e *engine) slotsOf(ctx context.Context, keep func(name string) bool) ([]found, error) {
	list, err := e.processes()
	if err != nil {
		return nil, err
	}
	var all []found
	var held []slot
	var buf []byte
	for _, p := range list {
		if e.gone(p) {
			continue
		}
		if held, buf, err = readSlots(e.liveFile(p, claimsExt), buf); err != nil {
			return nil, err
		}
		for _, s := range held {
			if keep(s.name) {
				all = append(all, found{slot: s})
			}
		}
	}
	err = e.look(ctx, func() {
		for i := range all {
			if s, ok := e.m.Session(all[i].session); ok {
				all[i].owner, all[i].meta = s.Owner, s.Meta
			}
		}
	})
	slices.SortFunc(all, func(a, b found) int { return int(a.since - b.since) })
	return all, err
}

// claimsOf lists holders and waiters of a lock file, by time.
func (e *engine) claimsOf(ctx context.Context, name string) (holders, waiters []driver.Claim, err error) {
	all, err := e.slotsOf(ctx, func(n string) bool { return n == name })
	now := e.now()
	for i := range all {
		k := all[i].claim(now)
		if all[i].state == slotHolds {
			holders = append(holders, k)
			continue
		}
		k.Position = len(waiters) + 1
		waiters = append(waiters, k)
	}
	return holders, waiters, err
}

func (f *found) claim(now int64) driver.Claim {
	return driver.Claim{
		Name: f.name, Kind: driver.ResourceKind(f.kind), Mode: driver.Mode(f.mode), Weight: 1, Token: driver.Token(f.token), Owner: f.owner, Meta: f.meta,
		Session: driver.SessionID(f.session), Created: driver.Revision(f.token), Modified: driver.Revision(f.token), Version: 1, Held: time.Duration(max(now-f.since, 0)),
	}
}
