package drivertest

import (
	"context"
	"io/fs"
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var nameCases = []Case{
	{Name: "Names/CaseCounts", Run: run(namesCaseCounts),
		Promise: "Names that differ in case are different names."},
	{Name: "Names/EveryText", Run: run(namesEveryText),
		Promise: "Every UTF-8 text without control characters is a name of its own, also with slashes, blanks, dots and wildcards."},
	{Name: "Names/Longest", Run: run(namesLongest),
		Promise: "Names of the greatest length count to their last byte."},
	{Name: "Names/Bad", Run: run(namesBad),
		Promise: "An empty name, one above 512 bytes, one with control characters or not in UTF-8 is fs.ErrInvalid before anything happens."},
	{Name: "Names/Sub", Run: run(namesSub),
		Promise: "Sub puts its prefix before every name, and nothing else."},
	{Name: "Names/OneKind", Needs: []driver.Feature{driver.FeatureWeighted}, Run: run(namesOneKind),
		Promise: "A name that is held as one kind cannot be used as another: ErrConflict."},
	{Name: "Names/KeysAreApart", Needs: []driver.Feature{driver.FeatureKV}, Run: run(namesKeysAreApart),
		Promise: "A key and a lock of the same name do not touch each other."},
}

func namesCaseCounts(ctx context.Context, e *Env) {
	s := e.Client()
	for _, name := range []string{"name", "NAME", "Name", "straße", "STRASSE", "é", "É"} {
		h, err := s.Mutex(name).TryAcquire(ctx)
		if err != nil {
			fail("%q is taken by another name: %w", name, err)
		}
		e.take(h, nil)
	}
}

// texts are pairwise different names that a careless engine takes for the same,
// or for something else.
var texts = []string{
	"a", "a/", "/a", "//a", "a/b", "a//b", "a/./b", "a/../a", "..", ".", " a", "a ", "a b", "a  b", "a.b", "a-b", "a_b",
	"a*", "a?", "[a]", "a>", "a:b", "{a}", "a%2Fb", "a%", `a\b`, "a'b", `a"b`, "a;b--", "$a", "a|b", "#a", "~", "CON", "nul",
	"日本", "e\u0301", "\u00e9", "\u200b", "🔒", "a.lock", "%00", "null", "0", "-1",
}

func namesEveryText(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	for _, name := range texts {
		h, err := a.Mutex(name).TryAcquire(ctx)
		if err != nil {
			fail("%q is not free beside the names before it: %w", name, err)
		}
		e.take(h, nil)
		want(h.Name() == e.Prefix()+name, "%q became %q", name, h.Name())
	}
	for _, name := range texts {
		refused(second(b.Mutex(name).TryAcquire(ctx)), holdfast.ErrHeld, "another client's TryAcquire of "+name)
	}
}

// longest is the greatest length of a name after the case's prefix.
func (e *Env) longest() int { return e.Info().MaxName - len(e.Prefix()) }

func namesLongest(ctx context.Context, e *Env) {
	s := e.Client()
	stem := strings.Repeat("x", e.longest()-1)
	for _, name := range []string{stem, stem + "a", stem + "b"} {
		h, err := s.Mutex(name).TryAcquire(ctx)
		if err != nil {
			fail("a name of %d bytes is refused or taken for another: %w", len(e.Prefix()+name), err)
		}
		defer h.Release()
	}
	refused(second(e.Client().Mutex(stem+"b").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire of a held long name")
}

func namesBad(ctx context.Context, e *Env) {
	s := e.Root()
	for _, name := range []string{"", strings.Repeat("x", 513), "a\nb", "a\x00b", "\x7f", "a\xffb", "\xed\xa0\x80"} {
		err := second(s.Mutex(name).Acquire(ctx))
		refused(err, fs.ErrInvalid, "Acquire of a bad name")
		want(holdfast.NotDone(err), "NotDone is false for %v", err)
	}
}

func namesSub(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Sub("a/").Sub("b").Mutex("c").Acquire(ctx))
	want(h.Name() == e.Prefix()+"a/bc", "Sub made the name %q", h.Name())
	refused(second(s.Mutex("a/bc").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire of the whole name")
	for _, other := range []string{"c", "a/c", "bc", "b/c"} {
		free(ctx, s.Mutex(other), "beside a Sub's name")
	}
	done(h.Release())
	free(ctx, s.Mutex("a/bc"), "after Release")
}

func namesOneKind(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	e.take(a.Mutex("m").Acquire(ctx))
	refused(second(b.Semaphore("m", 2).TryAcquire(ctx, 1)), holdfast.ErrConflict, "TryAcquire of a mutex as a semaphore")
	e.take(a.Semaphore("s", 2).Acquire(ctx, 1))
	refused(second(b.Mutex("s").TryAcquire(ctx)), holdfast.ErrConflict, "TryAcquire of a semaphore as a mutex")
}

func namesKeysAreApart(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Mutex("x").Acquire(ctx))
	must(s.KV().Put(ctx, "x", []byte("value")))
	must(s.KV().Delete(ctx, "x"))
	done(h.Err())
	refused(second(e.Client().Mutex("x").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire after the key was deleted")
	must(s.KV().Put(ctx, "x", []byte("value")))
	done(h.Release())
	want(string(must(s.KV().Get(ctx, "x")).Value) == "value", "Release of the lock changed the key")
}
