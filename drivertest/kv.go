package drivertest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var keys = []driver.Feature{driver.FeatureKV}

var kvCases = []Case{
	{Name: "KV/PutAndGet", Needs: keys, Run: run(kvPutAndGet),
		Promise: "What one client puts every client gets, at the revision that Put returned."},
	{Name: "KV/EveryValue", Needs: keys, Run: run(kvEveryValue),
		Promise: "Values come back byte by byte: empty, binary and large ones too."},
	{Name: "KV/Absent", Needs: keys, Run: run(kvAbsent),
		Promise: "Get of a key that does not exist, or was deleted, is fs.ErrNotExist."},
	{Name: "KV/Versions", Needs: keys, Run: run(kvVersions),
		Promise: "A key's version counts its changes, its creation stays, its modification grows; after a delete it begins anew at a greater revision."},
	{Name: "KV/Create", Needs: keys, Run: run(kvCreate),
		Promise: "Create of a key that exists, also an empty one, is ErrConflict and leaves it alone."},
	{Name: "KV/CompareAndSwap", Needs: keys, Run: run(kvCompareAndSwap),
		Promise: "CompareAndSwap changes a key that is at the revision given; else it is ErrConflict and changes nothing."},
	{Name: "KV/CompareAndSwapOfNothing", Needs: keys, Run: run(kvSwapOfNothing),
		Promise: "CompareAndSwap from revision 0 creates the key, and an old revision does not match a key that was made anew."},
	{Name: "KV/OneSwapWins", Needs: keys, Run: run(kvOneSwapWins),
		Promise: "Of several CompareAndSwaps from the same revision one wins."},
	{Name: "KV/CompareAndDelete", Needs: keys, Run: run(kvCompareAndDelete),
		Promise: "CompareAndDelete deletes a key that is at the revision given; else it is ErrConflict and deletes nothing."},
	{Name: "KV/Delete", Needs: keys, Run: run(kvDelete),
		Promise: "Delete tells whether there was a key."},
	{Name: "KV/Expire", Needs: keys, Run: run(kvExpire),
		Promise: "A key with Expire is there until its time, and then it is not."},
	{Name: "KV/PutEndsExpire", Needs: keys, Run: run(kvPutEndsExpire),
		Promise: "A Put without Expire makes a key last."},
	{Name: "KV/SessionKey", Needs: sessionKeys, Run: run(kvSessionKey),
		Promise: "A key under a session tells it and ends with it."},
}

var rangeCases = []Case{
	{Name: "Range/Prefix", Needs: keys, Run: run(rangePrefix),
		Promise: "Range returns the keys that begin with the prefix, all of them and no others, in order of key."},
	{Name: "Range/Limit", Needs: keys, Run: run(rangeLimit),
		Promise: "A page with Limit has the first keys, and tells that there are more."},
	{Name: "Range/Orders", Needs: keys, Run: run(rangeOrders),
		Promise: "Range orders by key, version, creation, modification or value, up or down."},
	{Name: "Range/KeysOnly", Needs: keys, Run: run(rangeKeysOnly),
		Promise: "Range with KeysOnly returns keys and revisions without the values."},
}

func kvPutAndGet(ctx context.Context, e *Env) {
	a, b := e.Client().KV(), e.Client().KV()
	for _, value := range []string{"one", "two"} {
		rev := must(a.Put(ctx, "k", []byte(value)))
		got := must(b.Get(ctx, "k"))
		want(got.Key == "k" && string(got.Value) == value, "%q was put under k; Get returns %+v", value, got)
		want(got.Modified == rev, "Put returned the revision %d; the key is at %d", rev, got.Modified)
	}
}

func kvEveryValue(ctx context.Context, e *Env) {
	s := e.Client().KV()
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	for _, value := range [][]byte{{}, nil, {0}, binary, []byte(strings.Repeat("0123456789abcdef", 2<<10))} {
		must(s.Put(ctx, "k", value))
		got := must(s.Get(ctx, "k"))
		want(bytes.Equal(got.Value, value), "%d bytes were put and %d others came back", len(value), len(got.Value))
	}
}

func kvAbsent(ctx context.Context, e *Env) {
	s := e.Client().KV()
	refused(second(s.Get(ctx, "k")), fs.ErrNotExist, "Get of a key that was never put")
	must(s.Put(ctx, "k", nil))
	must(s.Get(ctx, "k"))
	must(s.Delete(ctx, "k"))
	refused(second(e.Client().KV().Get(ctx, "k")), fs.ErrNotExist, "Get of a deleted key")
}

func kvVersions(ctx context.Context, e *Env) {
	s := e.Client().KV()
	var last holdfast.Revision
	for life := range 2 {
		created := must(s.Create(ctx, "k", []byte("v")))
		want(created > last, "life %d of the key began at %d, after %d", life, created, last)
		for version := uint64(1); version <= 3; version++ {
			got := must(s.Get(ctx, "k"))
			want(got.Version == version, "after %d changes the version is %d", version, got.Version)
			want(got.Created == created, "it was created at %d, and is told at %d", created, got.Created)
			want(got.Modified > last, "it was modified at %d, after %d", got.Modified, last)
			last = got.Modified
			must(s.Put(ctx, "k", []byte("v")))
		}
		must(s.Delete(ctx, "k"))
	}
}

func kvCreate(ctx context.Context, e *Env) {
	a, b := e.Client().KV(), e.Client().KV()
	for _, value := range []string{"mine", ""} {
		rev := must(a.Create(ctx, "k"+value, []byte(value)))
		err := second(b.Create(ctx, "k"+value, []byte("other")))
		refused(err, holdfast.ErrConflict, "Create of a key that exists")
		want(holdfast.NotDone(err), "NotDone is false for %v", err)
		got := must(b.Get(ctx, "k"+value))
		want(string(got.Value) == value && got.Modified == rev, "a refused Create changed the key to %+v", got)
	}
}

func kvCompareAndSwap(ctx context.Context, e *Env) {
	s := e.Client().KV()
	first := must(s.Put(ctx, "k", []byte("one")))
	next := must(s.CompareAndSwap(ctx, "k", first, []byte("two")))
	want(next > first, "the swap took the revision %d, after %d", next, first)
	for _, wrong := range []holdfast.Revision{first, next + 1, 0} {
		refused(second(s.CompareAndSwap(ctx, "k", wrong, []byte("three"))), holdfast.ErrConflict, "CompareAndSwap from another revision")
	}
	got := must(s.Get(ctx, "k"))
	want(string(got.Value) == "two" && got.Modified == next, "after refused swaps the key is %+v", got)
}

func kvSwapOfNothing(ctx context.Context, e *Env) {
	s := e.Client().KV()
	first := must(s.CompareAndSwap(ctx, "k", 0, []byte("one")))
	refused(second(s.CompareAndSwap(ctx, "k", 0, []byte("two"))), holdfast.ErrConflict, "CompareAndSwap from 0 of a key that exists")
	must(s.Delete(ctx, "k"))
	refused(second(s.CompareAndSwap(ctx, "k", first, []byte("two"))), holdfast.ErrConflict, "CompareAndSwap of a deleted key")
	must(s.CompareAndSwap(ctx, "k", 0, []byte("three")))
	refused(second(s.CompareAndSwap(ctx, "k", first, []byte("four"))), holdfast.ErrConflict, "CompareAndSwap from the revision of an earlier life")
	want(string(must(s.Get(ctx, "k")).Value) == "three", "after refused swaps the value is %q", must(s.Get(ctx, "k")).Value)
}

func kvOneSwapWins(ctx context.Context, e *Env) {
	clients := []*holdfast.KV{e.Client().KV(), e.Client().KV()}
	rev := must(clients[0].Put(ctx, "k", nil))
	won := make([]bool, 20)
	together(len(won), func(i int) {
		err := second(clients[i%2].CompareAndSwap(ctx, "k", rev, []byte{byte(i)}))
		won[i] = err == nil
		want(won[i] || errors.Is(err, holdfast.ErrConflict), "a swap failed otherwise: %v", err)
	})
	first := slices.Index(won, true)
	want(first >= 0 && !slices.Contains(won[first+1:], true), "the swaps that won are %v", won)
	want(must(clients[0].Get(ctx, "k")).Value[0] == byte(first), "swap %d won, and the value is %v", first, must(clients[0].Get(ctx, "k")).Value)
}

func kvCompareAndDelete(ctx context.Context, e *Env) {
	s := e.Client().KV()
	first := must(s.Put(ctx, "k", nil))
	next := must(s.Put(ctx, "k", nil))
	refused(second(s.CompareAndDelete(ctx, "k", first)), holdfast.ErrConflict, "CompareAndDelete at an old revision")
	want(must(s.Get(ctx, "k")).Modified == next, "a refused CompareAndDelete changed the key")
	must(s.CompareAndDelete(ctx, "k", next))
	refused(second(s.Get(ctx, "k")), fs.ErrNotExist, "Get of a deleted key")
	refused(second(s.CompareAndDelete(ctx, "k", next)), holdfast.ErrConflict, "CompareAndDelete of a deleted key")
}

func kvDelete(ctx context.Context, e *Env) {
	s := e.Client().KV()
	want(!must(s.Delete(ctx, "k")), "Delete found a key that was never put")
	must(s.Put(ctx, "k", nil))
	want(must(s.Delete(ctx, "k")), "Delete did not find the key")
	want(!must(s.Delete(ctx, "k")), "Delete found the key again")
}

func kvExpire(ctx context.Context, e *Env) {
	a, b := e.Client().KV(), e.Client().KV()
	start := time.Now()
	must(a.Put(ctx, "k", []byte("v"), holdfast.Expire(e.moment())))
	must(a.Put(ctx, "longest", nil, holdfast.Expire(70*365*24*time.Hour)))
	if got, err := b.Get(ctx, "k"); err == nil {
		want(got.ExpiresIn > 0 && got.ExpiresIn <= e.moment(), "a key for %s is told to last %s", e.moment(), got.ExpiresIn)
	}
	eventually(ctx, "the key did not expire", func() bool {
		return errors.Is(second(b.Get(ctx, "k")), fs.ErrNotExist)
	})
	atLeast(start, e.moment(), "the key expired")
	must(a.Create(ctx, "k", []byte("w")))
}

func kvPutEndsExpire(ctx context.Context, e *Env) {
	s := e.Client().KV()
	must(s.Put(ctx, "gone", nil, holdfast.Expire(e.moment())))
	must(s.Put(ctx, "stays", nil, holdfast.Expire(e.moment())))
	must(s.Put(ctx, "stays", nil))
	want(must(s.Get(ctx, "stays")).ExpiresIn == 0, "a key that lasts is told to expire in %s", must(s.Get(ctx, "stays")).ExpiresIn)
	must(s.Put(ctx, "later", nil, holdfast.Expire(e.moment())))
	for _, key := range []string{"gone", "later"} {
		eventually(ctx, "the key did not expire", func() bool { return errors.Is(second(s.Get(ctx, key)), fs.ErrNotExist) })
	}
	must(s.Get(ctx, "stays"))
}

func kvSessionKey(ctx context.Context, e *Env) {
	s, other := e.Client(), e.Client().KV()
	ses := must(s.Session(ctx))
	must(s.KV().Put(ctx, "k", []byte("v"), holdfast.Under(ses)))
	must(s.KV().Put(ctx, "freed", nil, holdfast.Under(ses)))
	must(s.KV().Put(ctx, "freed", nil))
	want(must(other.Get(ctx, "k")).Session == ses.ID(), "the key tells the session %x; it is %x", must(other.Get(ctx, "k")).Session, ses.ID())
	done(ses.Revoke())
	refused(second(other.Get(ctx, "k")), fs.ErrNotExist, "Get of a key whose session ended")
	must(other.Get(ctx, "freed"))
}

// listed are the keys of a page.
func listed(p holdfast.Page) []string {
	names := []string{}
	for _, entry := range p.Entries {
		names = append(names, entry.Key)
	}
	return names
}

func rangePrefix(ctx context.Context, e *Env) {
	s := e.Client().KV()
	for _, key := range []string{"b/2", "a", "b/1", "b", "b/", "b0", "c", "B/1", "b/10"} {
		must(s.Put(ctx, key, []byte(key)))
	}
	page := must(s.Page(ctx, "b/"))
	want(slices.Equal(listed(page), []string{"b/", "b/1", "b/10", "b/2"}), "the keys that begin with b/ are told as %q", listed(page))
	want(page.Count == 4 && !page.More, "of 4 keys %d are counted, more: %v", page.Count, page.More)
	for _, entry := range page.Entries {
		want(string(entry.Value) == entry.Key, "the value of %q is %q", entry.Key, entry.Value)
		want(entry.Modified <= page.Revision, "the range is of the revision %d, and %q of %d", page.Revision, entry.Key, entry.Modified)
	}
	want(must(s.Page(ctx, "d")).Count == 0, "keys were found that nobody put: %q", listed(must(s.Page(ctx, "d"))))
	want(must(s.Page(ctx, "")).Count == 9, "of 9 keys %q were found", listed(must(s.Page(ctx, ""))))
}

func rangeLimit(ctx context.Context, e *Env) {
	s := e.Client().KV()
	for _, key := range []string{"c", "a", "d", "b"} {
		must(s.Put(ctx, key, nil))
	}
	for n, wanted := range [][]string{{"a", "b", "c", "d"}, {"a"}, {"a", "b"}, {"a", "b", "c"}, {"a", "b", "c", "d"}, {"a", "b", "c", "d"}} {
		page := must(s.Page(ctx, "", holdfast.MaxKeys(n)))
		want(slices.Equal(listed(page), wanted), "the first %d of 4 keys are told as %q", n, listed(page))
		want(page.More == (len(wanted) < 4), "with a limit of %d More is %v", n, page.More)
	}
}

func rangeOrders(ctx context.Context, e *Env) {
	s := e.Client().KV()
	for _, kv := range [][2]string{{"b", "3"}, {"c", "1"}, {"a", "2"}, {"c", "1"}, {"b", "3"}, {"b", "3"}} {
		must(s.Put(ctx, kv[0], []byte(kv[1])))
	}
	for order, wanted := range map[holdfast.Order][]string{
		holdfast.ByKey:      {"a", "b", "c"},
		holdfast.ByVersion:  {"a", "c", "b"},
		holdfast.ByCreated:  {"b", "c", "a"},
		holdfast.ByModified: {"a", "c", "b"},
		holdfast.ByValue:    {"c", "a", "b"},
	} {
		up := listed(must(s.Page(ctx, "", order)))
		want(slices.Equal(up, wanted), "in order %d the keys are %q; want %q", order, up, wanted)
		down := listed(must(s.Page(ctx, "", order, holdfast.Descending())))
		slices.Reverse(down)
		want(slices.Equal(down, wanted), "in order %d, descending, the keys are %q from the end; want %q", order, down, wanted)
		last := listed(must(s.Page(ctx, "", order, holdfast.Descending(), holdfast.MaxKeys(1))))
		want(slices.Equal(last, wanted[2:]), "in order %d the last key is told as %q", order, last)
	}
	rangeTies(ctx, s)
}

// rangeTies: keys that are equal in an order come in order of key, and the other way
// round when the order is.
func rangeTies(ctx context.Context, s *holdfast.KV) {
	for _, key := range []string{"t/2", "t/3", "t/1"} {
		must(s.Put(ctx, key, []byte("same")))
	}
	for _, order := range []holdfast.Order{holdfast.ByVersion, holdfast.ByValue} {
		up := listed(must(s.Page(ctx, "t/", order)))
		want(slices.Equal(up, []string{"t/1", "t/2", "t/3"}), "keys that are equal in order %d are told as %q", order, up)
		down := listed(must(s.Page(ctx, "t/", order, holdfast.Descending())))
		want(slices.Equal(down, []string{"t/3", "t/2", "t/1"}), "keys that are equal in order %d, descending, are told as %q", order, down)
	}
}

func rangeKeysOnly(ctx context.Context, e *Env) {
	s := e.Client().KV()
	rev := must(s.Put(ctx, "k", []byte("v")))
	page := must(s.Page(ctx, "", holdfast.KeysOnly()))
	want(len(page.Entries) == 1, "of 1 key %d were found", len(page.Entries))
	got := page.Entries[0]
	want(got.Key == "k" && got.Modified == rev && got.Version == 1, "the key is told as %+v", got)
	want(len(got.Value) == 0, "KeysOnly returned the value %q", got.Value)
}
