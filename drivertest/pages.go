package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// Whatever there is, a read tells all of it, or where it goes on, or that it
// cannot.
var pageCases = []Case{
	{Name: "Range/ManyKeys", Needs: keys, Run: run(rangeManyKeys),
		Promise: "Range yields every one of more than a thousand keys once and in order, up and down, also those with large values."},
	{Name: "Range/Pages", Needs: keys, Run: run(rangePages),
		Promise: "Pages that begin after the last key of the one before give every key once and in order, up and down; only the last has no more."},
	{Name: "Range/After", Needs: keys, Run: run(rangeAfter),
		Promise: "A Range after a key, which need not exist or have the prefix, yields the keys that follow it."},
	{Name: "Range/WhileOthersChange", Needs: keys, Run: run(rangeWhileOthersChange),
		Promise: "Pages give every key that is there all the time once, while others come and go."},
	{Name: "Range/Counted", Needs: keys, Run: run(rangeCounted),
		Promise: "With Counted a page tells how many keys there are with the prefix, whatever Limit and After leave out."},
	{Name: "Range/SortedIsWhole", Needs: keys, Run: run(rangeSortedIsWhole),
		Promise: "A Range in another order than that of keys yields all keys, or is refused with ErrExhausted."},
	{Name: "Txn/GetsAreWhole", Needs: transaction, Run: run(txnGetsAreWhole),
		Promise: "A transaction that gets many large values returns every one, or is refused with ErrExhausted and changes nothing."},
	{Name: "Txn/PreviousIsWhole", Needs: transaction, Run: run(txnPreviousIsWhole),
		Promise: "A transaction that deletes many large values with Previous returns every one, or is refused with ErrExhausted and deletes nothing."},
	{Name: "List/Pages", Uses: HasDriver, Run: run(listPages),
		Promise: "A driver that is asked for a few names at a time tells every name once, in order."},
	{Name: "Inspect/ManyHolders", Needs: weighted, Uses: HasDriver, Run: run(inspectManyHolders),
		Promise: "A driver that is asked for a few claims at a time tells every holder once, and how many there are."},
	{Name: "Inspect/ManyWaiters", Needs: fifo, Uses: HasDriver, Run: run(inspectManyWaiters),
		Promise: "A driver that is asked for a few claims at a time tells every waiter once, with its place, and how many there are."},
	{Name: "Session/ManyThings", Needs: sessionKeys, Uses: HasDriver, Run: run(sessionManyThings),
		Promise: "A driver that is asked for a few things of a session at a time tells all that it holds and all its keys."},
}

// entries are what a Range yields.
func entries(seq iter.Seq2[holdfast.Entry, error]) (list []holdfast.Entry) {
	for entry, err := range seq {
		done(err)
		list = append(list, entry)
	}
	return list
}

// names are the keys of entries.
func names(list []holdfast.Entry) []string { return listed(holdfast.Page{Entries: list}) }

// fill puts a value of that size under each key.
func fill(ctx context.Context, e *Env, s *holdfast.KV, size int, keys ...string) {
	batch := 1
	if e.Has(driver.FeatureTxn) {
		batch = max(1, min(100, 50_000/(size+200)))
	}
	chunks := slices.Collect(slices.Chunk(keys, batch))
	together(10, func(i int) {
		for j := i; j < len(chunks); j += 10 {
			var ops []holdfast.Op
			for _, key := range chunks[j] {
				ops = append(ops, holdfast.PutOp(key, large(key, size)))
			}
			must(s.Txn(ctx, holdfast.Txn{Then: ops}))
		}
	})
}

// large is the value of a key.
func large(key string, size int) []byte {
	if size < len(key) {
		return nil
	}
	return append(bytes.Repeat([]byte{0xff}, size-len(key)), key...)
}

// near is a value near the greatest that every backend takes.
const near = 60_000

func numbered(format string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return list
}

func rangeManyKeys(ctx context.Context, e *Env) {
	s := e.Client().KV()
	small, big := numbered("k/%04d", 1050), numbered("k/%04d~", 30)
	fill(ctx, e, s, 0, small...)
	fill(ctx, e, s, near, big...)
	fill(ctx, e, s, 0, "j", "l")
	all := slices.Sorted(slices.Values(slices.Concat(small, big)))
	got := entries(s.Range(ctx, "k/"))
	want(slices.Equal(names(got), all), "of %d keys %d are told: %q to %q", len(all), len(got), first(got), last(got))
	for _, entry := range got {
		size := 0
		if slices.Contains(big, entry.Key) {
			size = near
		}
		want(bytes.Equal(entry.Value, large(entry.Key, size)), "the value of %q has %d bytes", entry.Key, len(entry.Value))
	}
	down := names(entries(s.Range(ctx, "k/", holdfast.Descending(), holdfast.KeysOnly())))
	slices.Reverse(down)
	want(slices.Equal(down, all), "of %d keys %d are told downwards", len(all), len(down))
	some := names(entries(s.Range(ctx, "k/", holdfast.MaxKeys(1020), holdfast.AfterKey("k/0010"))))
	at := slices.Index(all, "k/0010") + 1
	want(slices.Equal(some, all[at:at+1020]), "of the 1,020 keys after the tenth %d are told", len(some))
}

func first(list []holdfast.Entry) string { return slices.Concat(list, []holdfast.Entry{{}})[0].Key }
func last(list []holdfast.Entry) string {
	return slices.Concat([]holdfast.Entry{{}}, list)[len(list)].Key
}

func rangePages(ctx context.Context, e *Env) {
	s := e.Client().KV()
	all := numbered("k%02d", 12)
	fill(ctx, e, s, 10, all...)
	for _, limit := range []int{1, 5, 11, 12, 13} {
		up := paged(ctx, s, holdfast.MaxKeys(limit))
		want(slices.Equal(up, all), "pages of %d give %q", limit, up)
		down := paged(ctx, s, holdfast.MaxKeys(limit), holdfast.Descending())
		slices.Reverse(down)
		want(slices.Equal(down, all), "downwards pages of %d give, from the end, %q", limit, down)
	}
}

// paged reads all keys page by page.
func paged(ctx context.Context, s *holdfast.KV, opts ...holdfast.RangeOption) (list []string) {
	for after := ""; ; {
		page := must(s.Page(ctx, "", append([]holdfast.RangeOption{holdfast.AfterKey(after)}, opts...)...))
		list = append(list, listed(page)...)
		want(page.More == (page.Next != ""), "a page says more: %v, and goes on after %q", page.More, page.Next)
		if page.Next == "" {
			return list
		}
		want(len(list) <= 1000, "pages go on for ever, after %q", page.Next)
		after = page.Next
	}
}

func rangeAfter(ctx context.Context, e *Env) {
	s := e.Client().KV()
	fill(ctx, e, s, 10, "a", "k/1", "k/2", "k/3", "z")
	for _, c := range []struct {
		after    string
		up, down []string
	}{
		{"k/1", []string{"k/2", "k/3"}, nil},
		{"k/15", []string{"k/2", "k/3"}, []string{"k/1"}},
		{"k/3", nil, []string{"k/2", "k/1"}},
		{"a", []string{"k/1", "k/2", "k/3"}, nil},
		{"z", nil, []string{"k/3", "k/2", "k/1"}},
		{"", []string{"k/1", "k/2", "k/3"}, []string{"k/3", "k/2", "k/1"}},
	} {
		up := names(entries(s.Range(ctx, "k/", holdfast.AfterKey(c.after))))
		want(slices.Equal(up, c.up), "after %q come %q; want %q", c.after, up, c.up)
		down := names(entries(s.Range(ctx, "k/", holdfast.AfterKey(c.after), holdfast.Descending())))
		want(slices.Equal(down, c.down), "downwards after %q come %q; want %q", c.after, down, c.down)
	}
	refused(second(s.Page(ctx, "k/", holdfast.ByValue, holdfast.AfterKey("k/1"))), fs.ErrInvalid, "a Range by value after a key")
}

func rangeWhileOthersChange(ctx context.Context, e *Env) {
	s, other := e.Client().KV(), e.Client().KV()
	stay := numbered("k%02d", 20)
	fill(ctx, e, s, 10, stay...)
	fill(ctx, e, s, 10, numbered("k%02d+", 20)...)
	var seen []string
	for after, n := "", 0; ; n++ {
		page := must(s.Page(ctx, "k", holdfast.MaxKeys(3), holdfast.AfterKey(after)))
		for _, key := range listed(page) {
			if slices.Contains(stay, key) {
				seen = append(seen, key)
			}
		}
		if page.Next == "" {
			break
		}
		after = page.Next
		must(other.Delete(ctx, fmt.Sprintf("k%02d+", n))) // behind, at, and before where it is
		must(other.Delete(ctx, fmt.Sprintf("k%02d+", 2*n)))
		must(other.Put(ctx, fmt.Sprintf("k%02d-", n), nil))
		must(other.Put(ctx, fmt.Sprintf("k%02d-", 19-n%20), nil))
	}
	want(slices.Equal(seen, stay), "of the keys that stay these are told: %q", seen)
}

func rangeCounted(ctx context.Context, e *Env) {
	s := e.Client().KV()
	fill(ctx, e, s, 10, slices.Concat(numbered("k/%02d", 30), []string{"j", "l"})...)
	for _, opts := range [][]holdfast.RangeOption{{holdfast.MaxKeys(7)}, {holdfast.AfterKey("k/12")}, {holdfast.MaxKeys(7), holdfast.AfterKey("k/12"), holdfast.Descending()}, {}, {holdfast.ByValue, holdfast.MaxKeys(2)}} {
		page := must(s.Page(ctx, "k/", append(opts, holdfast.Counted())...))
		want(page.Count == 30, "with %v 30 keys are counted as %d", opts, page.Count)
		page = must(s.Page(ctx, "k/", opts...))
		want(page.Count == int64(len(page.Entries)), "with %v a page of %d keys says %d, and was not asked to count", opts, len(page.Entries), page.Count)
	}
	want(must(s.Page(ctx, "m", holdfast.Counted())).Count == 0, "keys are counted that nobody put")
}

func rangeSortedIsWhole(ctx context.Context, e *Env) {
	s := e.Client().KV()
	fill(ctx, e, s, near, numbered("k/%02d", 30)...)
	for _, opts := range [][]holdfast.RangeOption{{holdfast.ByCreated}, {holdfast.ByValue, holdfast.Descending()}, {holdfast.ByVersion, holdfast.MaxKeys(25)}} {
		n := 0
		var failed error
		for _, err := range s.Range(ctx, "k/", opts...) {
			if failed = err; err == nil {
				n++
			}
		}
		whole := 30
		if len(opts) > 1 && opts[1] == holdfast.MaxKeys(25) {
			whole = 25
		}
		want(failed == nil && n == whole || errors.Is(failed, holdfast.ErrExhausted) && n == 0, "of %d keys %d are told, and the error is %w", whole, n, failed)
	}
	got := names(entries(s.Range(ctx, "k/", holdfast.ByCreated, holdfast.KeysOnly())))
	want(len(got) == 30, "without values %d of 30 keys are told", len(got))
}

func txnGetsAreWhole(ctx context.Context, e *Env) {
	s := e.Client().KV()
	all := numbered("k%02d", 30)
	fill(ctx, e, s, near, all...)
	ops := []holdfast.Op{holdfast.PutOp("done", nil)}
	for _, key := range all {
		ops = append(ops, holdfast.GetOp(key))
	}
	res, err := s.Txn(ctx, holdfast.Txn{Then: ops})
	if err != nil {
		refused(err, holdfast.ErrExhausted, "30 large gets in one transaction")
		want(holdfast.NotDone(err), "NotDone is false for %v", err)
		refused(second(s.Get(ctx, "done")), fs.ErrNotExist, "Get of what a refused transaction put")
		return
	}
	must(s.Get(ctx, "done"))
	for i, key := range all {
		got := res.Results[1+i].Entries
		want(len(got) == 1, "%q exists and looks absent", key)
		want(bytes.Equal(got[0].Value, large(key, near)), "the value of %q has %d bytes", key, len(got[0].Value))
	}
}

func txnPreviousIsWhole(ctx context.Context, e *Env) {
	s := e.Client().KV()
	all := numbered("k/%02d", 30)
	fill(ctx, e, s, near, all...)
	res, err := s.Txn(ctx, holdfast.Txn{Then: []holdfast.Op{holdfast.DeleteRangeOp("k/").WithPrevious()}})
	left := names(entries(s.Range(ctx, "k/", holdfast.KeysOnly())))
	if err != nil {
		refused(err, holdfast.ErrExhausted, "deleting 30 large values with Previous")
		want(slices.Equal(left, all), "a refused transaction has left %q", left)
		return
	}
	want(slices.Equal(names(res.Results[0].Entries), all), "30 keys were deleted, and these are told: %q", names(res.Results[0].Entries))
	want(len(left) == 0, "after the delete there are %q", left)
}

// narrow asks a driver for a few things at a time.
type narrow struct{ driver.Driver }

const few = 7

func (n narrow) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	q := *r
	q.Max = few
	reply, err := n.Driver.Inspect(ctx, &q)
	told := len(reply.Resources)
	if !q.Prefix && told > 0 {
		told = len(reply.Resources[0].Holders) + len(reply.Resources[0].Waiters)
	}
	if err == nil && told > few && reply.Next != "" {
		err = fmt.Errorf("asked for %d at most the driver tells %d and goes on", few, told)
	}
	return reply, err
}

func (n narrow) SessionInfo(ctx context.Context, r *driver.SessionInfoRequest) (driver.SessionInfo, error) {
	q := *r
	q.Max = few
	return n.Driver.SessionInfo(ctx, &q)
}

// narrowed is a client that reads a few things at a time.
func (e *Env) narrowed(ctx context.Context) *holdfast.Space {
	s := must(holdfast.New(narrow{must(e.Driver(ctx))}))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opened = append(e.opened, s)
	return s.Sub(e.prefix)
}

func listPages(ctx context.Context, e *Env) {
	s := e.Client()
	all := numbered("n%02d", 40)
	together(10, func(i int) {
		for j := i; j < len(all); j += 10 {
			e.take(s.Mutex(all[j]).Acquire(ctx))
		}
	})
	got := namesOf(ctx, e.narrowed(ctx), "")
	want(slices.Equal(got, all), "of %d names these are told: %q", len(all), got)
}

func inspectManyHolders(ctx context.Context, e *Env) {
	s := e.Client()
	var held []holdfast.Token
	for range 40 {
		held = append(held, e.take(s.Semaphore("s", 100).Acquire(ctx, 1)).Token())
	}
	r := must(e.narrowed(ctx).Inspect(ctx, "s"))
	var told []holdfast.Token
	for _, c := range r.Holders {
		told = append(told, c.Token)
	}
	slices.Sort(told)
	want(slices.Equal(told, slices.Sorted(slices.Values(held))), "of 40 holders %d are told", len(told))
	want(r.Holding == 40 && r.Waiting == 0 && !r.More, "%d are said to hold and %d to wait, more: %v", r.Holding, r.Waiting, r.More)
}

func inspectManyWaiters(ctx context.Context, e *Env) {
	s := e.Client(holdfast.Owner("who"))
	h, queue := line(ctx, 30, s)
	r := must(e.narrowed(ctx).Inspect(ctx, "m"))
	want(len(r.Holders) == 1 && r.Holding == 1, "one holds; %d are told and %d said", len(r.Holders), r.Holding)
	want(len(r.Waiters) == 30 && r.Waiting == 30 && !r.More, "of 30 who wait %d are told and %d said, more: %v", len(r.Waiters), r.Waiting, r.More)
	for i, c := range r.Waiters {
		want(c.Position == i+1, "waiter %d is told at place %d", i+1, c.Position)
	}
	inOrder(ctx, h, queue)
}

func sessionManyThings(ctx context.Context, e *Env) {
	s := e.narrowed(ctx)
	ses := must(s.Session(ctx))
	held, kept := numbered("m%02d", 20), numbered("k%02d", 20)
	for i := range held {
		e.take(s.Mutex(held[i], holdfast.Under(ses)).Acquire(ctx))
		must(s.KV().Put(ctx, kept[i], nil, holdfast.Under(ses)))
	}
	info := must(ses.Info(ctx))
	want(slices.Equal(info.Names, held), "of 20 holds these are told: %q", info.Names)
	want(slices.Equal(info.Keys, kept), "of 20 keys these are told: %q", info.Keys)
	want(info.Next == "", "all is told, and more is said after %q", info.Next)
}
