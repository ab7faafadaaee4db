package drivertest

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var (
	session     = []driver.Feature{driver.FeatureSession}
	sessionKeys = []driver.Feature{driver.FeatureSession, driver.FeatureKV}
)

var sessionCases = []Case{
	{Name: "Session/EndsWithoutKeep", Needs: session, Uses: HasTTL, Run: timed(sessionEndsWithoutKeep),
		Promise: "A session that nobody keeps ends after its TTL, with the holds on it, and the next is granted."},
	{Name: "Session/Keep", Needs: session, Uses: HasTTL, Run: timed(sessionKeep),
		Promise: "A session that is kept outlives its TTL, and so do the holds on it."},
	{Name: "Session/RenewsItself", Needs: session, Uses: HasTTL, Run: timed(sessionRenewsItself),
		Promise: "A session outlives its TTL without Keep, unless it was opened with ManualRenew."},
	{Name: "Session/TimeToLive", Needs: session, Uses: HasTTL, Run: timed(sessionTimeToLive),
		Promise: "TimeToLive is above 0 and at most the TTL, and Keep moves it up."},
	{Name: "Session/RevokeFreesAll", Needs: sessionKeys, Run: run(sessionRevokeFreesAll),
		Promise: "Revoke ends the session's holds, frees their names and removes its keys."},
	{Name: "Session/Info", Needs: sessionKeys, Run: run(sessionInfo),
		Promise: "A session's Info tells its owner and metadata, what it holds, what it waits for and its keys."},
	{Name: "Session/OnItsOwn", Needs: session, Run: run(sessionOnItsOwn),
		Promise: "A session's end leaves the Space's other holds and sessions alone; every session has an id of its own."},
	{Name: "Session/NothingAfterItsEnd", Needs: sessionKeys, Run: run(sessionNothingAfterItsEnd),
		Promise: "Nothing can be taken, put or kept under a session that has ended; the error names the call, the session and what to do."},
	{Name: "Session/ClosedClient", Needs: sessionKeys, Run: run(sessionClosedClient),
		Promise: "Closing a client ends its sessions with their keys."},
	{Name: "Hold/ManualRenew", Needs: session, Uses: HasTTL, Run: timed(holdManualRenew),
		Promise: "A hold with ManualRenew ends after its TTL unless Renew is called."},
	{Name: "Hold/ManualRenewNeedsTTL", Run: run(holdManualRenewNeedsTTL),
		Promise: "A backend without sessions that end by a TTL refuses ManualRenew, which would mean nothing there: errors.ErrUnsupported."},
	{Name: "Hold/RenewOnlyForward", Needs: session, Uses: HasTTL, Run: timed(holdRenewOnlyForward),
		Promise: "Renew moves a hold's end on, and a shorter Renew does not move it back."},
}

// long is a TTL that does not pass within a case.
func (e *Env) long() time.Duration { return max(60*e.TTL, time.Minute) }

func sessionEndsWithoutKeep(ctx context.Context, e *Env) {
	s := e.Client()
	ses := must(s.Session(ctx, e.short(), holdfast.ManualRenew()))
	h := must(s.Mutex("m", holdfast.Under(ses)).Acquire(ctx))
	next := must(e.Client().Mutex("m").Acquire(ctx))
	ends(ctx, h.Done(), "a hold under a session that nobody keeps")
	ends(ctx, ses.Done(), "a session that nobody keeps")
	refused(ses.Err(), holdfast.ErrLost, "Err of a session that nobody kept")
	refused(h.Err(), holdfast.ErrLost, "Err of a hold under it")
	want(next.Token() > h.Token(), "the next token is %d, the one before was %d", next.Token(), h.Token())
}

// outlives runs keep until the deadline that now is has passed.
func outlives(ctx context.Context, deadline time.Time, keep func()) {
	eventually(ctx, "time does not pass", func() bool {
		keep()
		return driver.Until(deadline) < 0
	})
}

func sessionKeep(ctx context.Context, e *Env) {
	s, other := e.Client(), e.Client()
	ses := must(s.Session(ctx, e.short(), holdfast.ManualRenew()))
	h := must(s.Mutex("m", holdfast.Under(ses)).Acquire(ctx))
	first, ok := ses.Deadline()
	want(ok, "a session with a TTL has no deadline")
	outlives(ctx, first.Add(e.TTL/2), func() { done(ses.Keep(ctx)) })
	done(h.Err())
	err := second(other.Mutex("m").TryAcquire(ctx))
	inTime(h)
	refused(err, holdfast.ErrHeld, "TryAcquire of a name under a kept session")
	done(ses.Revoke())
}

func sessionRenewsItself(ctx context.Context, e *Env) {
	ses := must(e.Client().Session(ctx, e.short()))
	first, _ := ses.Deadline()
	outlives(ctx, first.Add(e.TTL/2), func() { done(ses.Err()) })
	must(ses.TimeToLive(ctx))
	done(ses.Revoke())
}

func sessionTimeToLive(ctx context.Context, e *Env) {
	ttl := 2 * e.TTL
	ses := must(e.Client().Session(ctx, holdfast.TTL(ttl), holdfast.ManualRenew()))
	left := must(ses.TimeToLive(ctx))
	want(left > 0 && left <= ttl, "a session with a TTL of %s has %s to live", ttl, left)
	eventually(ctx, "the time to live does not become less", func() bool { return must(ses.TimeToLive(ctx)) < ttl*3/4 })
	start := time.Now()
	done(ses.Keep(ctx))
	left = must(ses.TimeToLive(ctx))
	want(left <= ttl && left >= ttl-ttl/20-time.Since(start), "%s after Keep the time to live is %s of %s", time.Since(start), left, ttl)
	done(ses.Revoke())
}

func sessionRevokeFreesAll(ctx context.Context, e *Env) {
	s, other := e.Client(), e.Client()
	ses := must(s.Session(ctx))
	m, n := must(s.Mutex("m", holdfast.Under(ses)).Acquire(ctx)), must(s.Mutex("n", holdfast.Under(ses)).Acquire(ctx))
	must(s.KV().Put(ctx, "k", []byte("v"), holdfast.Under(ses)))
	done(ses.Revoke())
	refused(ses.Err(), holdfast.ErrReleased, "Err of a revoked session")
	for _, h := range []*holdfast.Hold{m, n} {
		refused(h.Err(), holdfast.ErrLost, "Err of a hold under a revoked session")
	}
	free(ctx, other.Mutex("m"), "after its session was revoked")
	free(ctx, other.Mutex("n"), "after its session was revoked")
	refused(second(other.KV().Get(ctx, "k")), fs.ErrNotExist, "Get of a revoked session's key")
	done(ses.Revoke())
}

func sessionInfo(ctx context.Context, e *Env) {
	s := e.Client()
	busy := must(e.Client().Mutex("busy").Acquire(ctx))
	ses := must(s.Session(ctx, holdfast.Owner("who"), holdfast.Meta("what")))
	e.take(s.Mutex("m", holdfast.Under(ses)).Acquire(ctx))
	must(s.KV().Put(ctx, "k", nil, holdfast.Under(ses)))
	queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) {
		return s.Mutex("busy", holdfast.Under(ses), o).Acquire(ctx)
	})
	info := must(ses.Info(ctx))
	want(info.ID == ses.ID(), "the session %x is told as %x", ses.ID(), info.ID)
	want(info.Owner == "who" && info.Meta == "what", "owner and metadata are told as %q and %q", info.Owner, info.Meta)
	want(slices.Equal(info.Names, []string{"m"}), "it is told to hold %q", info.Names)
	want(slices.Equal(info.Waits, []string{"busy"}), "it is told to wait for %q", info.Waits)
	want(slices.Equal(info.Keys, []string{"k"}), "its keys are told as %q", info.Keys)
	want(slices.Equal(must(ses.Keys(ctx)), []string{"k"}), "Keys tells %q", must(ses.Keys(ctx)))
	done(busy.Release())
}

func sessionOnItsOwn(ctx context.Context, e *Env) {
	s := e.Client()
	a, b := must(s.Session(ctx)), must(s.Session(ctx))
	want(a.ID() != b.ID(), "two sessions have the id %x", a.ID())
	under, space := must(s.Mutex("b", holdfast.Under(b)).Acquire(ctx)), must(s.Mutex("s").Acquire(ctx))
	done(a.Revoke())
	done(b.Err())
	for _, h := range []*holdfast.Hold{under, space} {
		done(h.Err())
		refused(second(e.Client().Mutex(h.Name()[len(e.Prefix()):]).TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire after another session's end")
		done(h.Release())
	}
	done(b.Err())
	done(b.Revoke())
}

func sessionNothingAfterItsEnd(ctx context.Context, e *Env) {
	s := e.Client()
	ses := must(s.Session(ctx))
	done(ses.Revoke())
	id := ses.ID().String()
	tells(second(s.Mutex("m", holdfast.Under(ses)).Acquire(ctx)), "acquire", "m", id, "Space.Session")
	tells(second(s.KV().Put(ctx, "k", nil, holdfast.Under(ses))), "put", "k", id, "Space.Session")
	tells(ses.Keep(ctx), "keep session", id, "Space.Session")
	free(ctx, e.Client().Mutex("m"), "after an Acquire under an ended session")
	refused(second(s.KV().Get(ctx, "k")), fs.ErrNotExist, "Get of a key under an ended session")
}

// tells leaves the case unless err names the operation, what it is about, and parts.
func tells(err error, op, name string, parts ...string) {
	want(err != nil, "%s %q under an ended session succeeded", op, name)
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || e.Op != op || !strings.HasSuffix(e.Name, name) {
		fail("%s %q under an ended session: %w", op, name, err)
	}
	for _, part := range parts {
		want(strings.Contains(err.Error(), part), "%v does not say %q", err, part)
	}
}

func sessionClosedClient(ctx context.Context, e *Env) {
	root, other := must(e.Open(ctx)), e.Client()
	s := root.Sub(e.Prefix())
	ses := must(s.Session(ctx))
	must(s.KV().Put(ctx, "k", nil, holdfast.Under(ses)))
	must(other.KV().Get(ctx, "k"))
	done(root.Close())
	want(ses.Err() != nil, "the session of a closed client goes on")
	eventually(ctx, "the key of a closed client's session stays", func() bool {
		return errors.Is(second(other.KV().Get(ctx, "k")), fs.ErrNotExist)
	})
}

func holdManualRenewNeedsTTL(ctx context.Context, e *Env) {
	s, i := e.Client(), e.Info()
	m := s.Mutex("m", holdfast.ManualRenew())
	if i.Features[driver.FeatureSession] && i.MaxTTL > 0 {
		done(must(m.Acquire(ctx)).Release())
		return
	}
	refused(second(m.Acquire(ctx)), errors.ErrUnsupported, "Acquire with ManualRenew")
	refused(second(s.Session(ctx, holdfast.ManualRenew())), errors.ErrUnsupported, "Session with ManualRenew")
	free(ctx, e.Client().Mutex("m"), "after an Acquire that was refused")
}

func holdManualRenew(ctx context.Context, e *Env) {
	m := e.Client().Mutex("m", e.short(), holdfast.ManualRenew())
	h := must(m.Acquire(ctx))
	first, ok := h.Deadline()
	want(ok, "a hold that is renewed by hand has no deadline")
	outlives(ctx, first.Add(e.TTL/2), func() { done(h.Renew(ctx, 0)) })
	done(h.Err())
	done(must(e.Client().Mutex("m").Acquire(ctx)).Release())
	ends(ctx, h.Done(), "a hold that is no longer renewed")
	refused(h.Err(), holdfast.ErrLost, "Err of a hold that is no longer renewed")
	refused(h.Renew(ctx, 0), holdfast.ErrLost, "Renew of a lost hold")
}

func holdRenewOnlyForward(ctx context.Context, e *Env) {
	h := must(e.Client().Mutex("m", e.short(), holdfast.ManualRenew()).Acquire(ctx))
	first, _ := h.Deadline()
	done(h.Renew(ctx, e.long()))
	moved, _ := h.Deadline()
	want(moved.After(first.Add(e.long()/2)), "Renew moved the deadline by %s", moved.Sub(first))
	done(h.Renew(ctx, e.TTL))
	still, _ := h.Deadline()
	want(!still.Before(moved), "a shorter Renew moved the deadline back by %s", moved.Sub(still))
	other := e.Client().Mutex("m")
	outlives(ctx, driver.Now().Add(e.TTL*3/2), func() {
		refused(second(other.TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire of a renewed hold")
	})
	done(h.Release())
}
