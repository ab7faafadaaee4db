package drivertest_test

import (
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// split gives the claims that have name and those that wait for it, in order.
func (e *engine) split(name string) (holders, waiters []*toyClaim) {
	for _, c := range e.claims {
		switch {
		case c.want(name) == nil:
		case c.token != 0:
			holders = append(holders, c)
		default:
			waiters = append(waiters, c)
		}
	}
	return holders, waiters
}

// describe is a claim as others are told of it.
func (e *engine) describe(c *toyClaim, name string) driver.Claim {
	w := c.want(name)
	d := driver.Claim{
		Name: name, Kind: w.Kind, Mode: w.Mode, Weight: max(w.Weight, 1), Token: c.token, Owner: c.Spec.Owner, Meta: c.Spec.Meta,
		Session: c.session.id, Value: c.Value, Created: driver.Revision(c.token), Modified: driver.Revision(c.token + driver.Token(c.changes)), Version: c.changes,
		Held: time.Since(c.since), ExpiresIn: max(time.Until(c.session.deadline), 0), Revoked: !c.until.IsZero(),
		Stale: c.session.lapsed(time.Now()),
	}
	switch {
	case e.has("wrong holder"):
		d.Token, d.Owner = d.Token+1, "somebody else"
	case e.has("no deadline told"):
		d.ExpiresIn = 0
	case e.has("modes untold"):
		d.Mode = driver.Exclusive
	case e.has("value untold"):
		d.Value = nil
	}
	return d
}

func (e *engine) resource(name string) driver.Resource {
	holders, waiters := e.split(name)
	r := driver.Resource{Name: name, Limit: int64(e.limit(name))}
	for _, c := range holders {
		r.Kind = c.want(name).Kind
		r.Holders = append(r.Holders, e.describe(c, name))
		r.Used += max(c.want(name).Weight, 1)
	}
	for i, c := range waiters {
		r.Kind = c.want(name).Kind
		d := e.describe(c, name)
		d.Position = i + 1
		r.Waiters = append(r.Waiters, d)
	}
	if v := e.objects[object{driver.Latch, name}]; v != nil {
		r.Kind, r.Limit = driver.Latch, int64(v.made)
	}
	switch {
	case e.has("great limits untold") && (r.Limit >= 1<<50 || r.Kind == driver.Latch):
		r.Limit = 0
	case e.has("used untold"):
		r.Used = 0
	case e.has("no queue told"):
		r.Waiters = nil
	case e.has("remembers holders") && len(holders) == 0:
		r.Holders = append(r.Holders, e.past[name])
	}
	return r
}

// held is the refusal of a try.
func (e *engine) held(c *toyClaim) error {
	he := &driver.Error{Kind: driver.ErrHeld, Outcome: driver.NotDone}
	for _, w := range c.Wants {
		r := e.resource(w.Name)
		he.Holders, he.Waiting = append(he.Holders, r.Holders...), he.Waiting+len(r.Waiters)
	}
	if e.has("one holder told") {
		he.Holders = he.Holders[:1]
	}
	if e.has("refused without a kind") {
		for i := range he.Holders {
			he.Holders[i].Kind = 0
		}
	}
	return he
}

// admit checks a wish before it is queued, and makes what it needs.
func (e *engine) admit(c *toyClaim) error {
	for _, w := range c.Wants {
		for _, o := range e.claims {
			if hw := o.want(w.Name); hw != nil && hw.Kind != w.Kind && !e.has("kinds mix") {
				return refusal(driver.ErrConflict, "it is a %s", hw.Kind)
			}
		}
		if err := e.admitLimit(w); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) admitLimit(w driver.Want) error {
	if w.Kind != driver.Semaphore && w.Kind != driver.Latch && w.Kind != driver.Barrier {
		return nil
	}
	v := e.objects[object{w.Kind, w.Name}]
	switch {
	case v == nil && w.Limit == 0 && !e.has("makes itself"):
		return refusal(fs.ErrNotExist, "there is no such %s", w.Kind)
	case v == nil:
		v = &value{n: uint64(max(w.Limit, 1)), made: uint64(max(w.Limit, 1))}
		e.objects[object{w.Kind, w.Name}] = v
	case w.Kind != driver.Latch && w.Limit != 0 && uint64(w.Limit) != v.n && !e.has("limit differs quietly"):
		return refusal(driver.ErrConflict, "its limit is %d", v.n)
	}
	if w.Kind == driver.Semaphore && uint64(w.Weight) > v.n && !e.has("heavy waits") {
		return refusal(fs.ErrInvalid, "the weight %d is above its limit %d", w.Weight, v.n)
	}
	return nil
}

func refusal(kind error, format string, args ...any) error {
	return driver.Errorf("", "", kind, format, args...)
}

// spell is a name as the engine keeps it.
func (e *engine) spell(name string) string {
	switch {
	case e.has("folds case"):
		return strings.ToLower(name)
	case e.has("cleans names"):
		return path.Clean(name)
	case e.has("cuts names"):
		return name[:min(len(name), 200)]
	case e.has("last element only"):
		return name[strings.LastIndex(name, "/")+1:]
	}
	return name
}
