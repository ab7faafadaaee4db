package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
)

var errorCases = []Case{
	{Name: "Errors/SayWhatAndWhere", Run: run(errorsSayWhatAndWhere),
		Promise: "An error is an *Error that says the call and the whole name, in its fields and in its text."},
	{Name: "Errors/HeldSaysByWhom", Run: run(errorsHeldSaysByWhom),
		Promise: "The text of ErrHeld says who holds the name and with which token."},
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
