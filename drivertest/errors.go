package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var errorCases = []Case{
	{Name: "Errors/SayWhatAndWhere", Run: run(errorsSayWhatAndWhere),
		Promise: "An error is an *Error that says the call and the whole name, in its fields and in its text."},
	{Name: "Errors/HeldSaysByWhom", Run: run(errorsHeldSaysByWhom),
		Promise: "The text of ErrHeld says who holds the name and with which token."},
	{Name: "Errors/HeldTellsAsInspect", Run: run(errorsHeldTellsAsInspect),
		Promise: "The holders that ErrHeld names are those that Inspect tells, with kind, mode, weight, token, owner and metadata."},
	{Name: "Errors/BadOptions", Run: run(errorsBadOptions),
		Promise: "An option out of range is fs.ErrInvalid from Open or from the first call, with the range in its text."},
	{Name: "Errors/LostSaysWhy", Needs: force, Run: run(errorsLostSaysWhy),
		Promise: "The error of a lost hold says its name and why it was lost."},
}

// spells leaves the case unless err is an *Error of op and name and its text
// has all of parts.
func spells(err error, op, name string, parts ...string) {
	he, ok := errors.AsType[*holdfast.Error](err)
	want(ok, "%v is a %T, not an *Error", err, err)
	want(he.Op == op && he.Name == name, "%q says the call %q of %q; want %q of %q", err, he.Op, he.Name, op, name)
	for _, part := range append(parts, op, name) {
		want(strings.Contains(err.Error(), part), "the text %q lacks %q", err, part)
	}
}

func errorsSayWhatAndWhere(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Mutex("m").Acquire(ctx))
	spells(second(s.Mutex("m").TryAcquire(ctx)), "acquire", e.Prefix()+"m")
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	err := second(s.Mutex("m").Acquire(short))
	refused(err, context.DeadlineExceeded, "Acquire past its deadline")
	spells(err, "acquire", e.Prefix()+"m")
	done(h.Release())
	spells(h.Err(), "hold", e.Prefix()+"m", "released")
}

func errorsHeldSaysByWhom(ctx context.Context, e *Env) {
	h := must(e.Client(holdfast.Owner("the first")).Mutex("m").Acquire(ctx))
	err := second(e.Client().Mutex("m").TryAcquire(ctx))
	refused(err, holdfast.ErrHeld, "TryAcquire of a held mutex")
	spells(err, "acquire", e.Prefix()+"m", "held", "the first", fmt.Sprint(h.Token()))
	done(h.Release())
}

func errorsHeldTellsAsInspect(ctx context.Context, e *Env) {
	a, b := e.Client(holdfast.Owner("the first"), holdfast.Meta("its data")), e.Client()
	as := func(name string, h *holdfast.Hold, err error) {
		refused(err, holdfast.ErrHeld, "a try beside a holder")
		he, _ := errors.AsType[*holdfast.Error](err)
		res := must(b.Inspect(ctx, name))
		want(len(he.Holders) == 1 && len(res.Holders) == 1, "ErrHeld names %v, Inspect %v; want one holder each", he.Holders, res.Holders)
		said, seen := he.Holders[0], res.Holders[0]
		same := said.Kind == seen.Kind && said.Mode == seen.Mode && said.Weight == seen.Weight &&
			said.Token == seen.Token && said.Owner == seen.Owner && said.Meta == seen.Meta && said.Session == seen.Session
		want(same, "ErrHeld tells %+v, and Inspect %+v", said, seen)
		want(said.Token == h.Token() && said.Meta == "its data", "%+v; want the token %d and the metadata", said, h.Token())
		done(h.Release())
	}
	h := must(a.Mutex("m").Acquire(ctx))
	as("m", h, second(b.Mutex("m").TryAcquire(ctx)))
	if e.Has(driver.FeatureShared) {
		h = must(a.RWMutex("r").Writer().Acquire(ctx))
		as("r", h, second(b.RWMutex("r").Reader().TryAcquire(ctx)))
	}
	if e.Has(driver.FeatureWeighted) {
		h = must(a.Semaphore("s", 3).Acquire(ctx, 2))
		as("s", h, second(b.Semaphore("s", 3).TryAcquire(ctx, 2)))
	}
}

func errorsBadOptions(ctx context.Context, e *Env) {
	s := e.Client()
	for _, o := range []holdfast.HoldOption{holdfast.TTL(5), holdfast.TTL(-1), holdfast.TTL(25 * time.Hour), holdfast.Meta(strings.Repeat("x", 5<<10))} {
		err := second(s.Mutex("m", o).Acquire(ctx))
		refused(err, fs.ErrInvalid, "Acquire with an option out of range")
		want(holdfast.NotDone(err), "NotDone is false for %v", err)
	}
	err := second(s.Mutex("m", holdfast.TTL(5)).Acquire(ctx))
	spells(err, "acquire", e.Prefix()+"m", "TTL(5ns)", "range", "24h")
	for _, o := range []holdfast.Option{holdfast.TTL(5), holdfast.Owner("a\nb")} {
		opened, err := e.Open(ctx, o)
		if err == nil {
			done(opened.Close())
		}
		refused(err, fs.ErrInvalid, "Open with an option out of range")
	}
	free(ctx, s.Mutex("m"), "after refused calls")
}

func errorsLostSaysWhy(ctx context.Context, e *Env) {
	h := must(e.Client().Mutex("m").Acquire(ctx))
	lose(ctx, e.Client(), "m", h)
	ends(ctx, h.Done(), "a hold that was forced out")
	spells(h.Err(), "hold", e.Prefix()+"m", "lost: ")
}
