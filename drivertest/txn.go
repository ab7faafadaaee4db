package drivertest

import (
	"context"
	"io/fs"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var transaction = []driver.Feature{driver.FeatureKV, driver.FeatureTxn}

var txnCases = []Case{
	{Name: "Txn/AllConditions", Needs: transaction, Run: run(txnAllConditions),
		Promise: "A transaction does Then if every condition is true, and Else if one is not."},
	{Name: "Txn/Conditions", Needs: transaction, Run: run(txnConditions),
		Promise: "Conditions compare value, version, creation, modification and session by equal, not equal, less and greater; an absent key has the numbers 0."},
	{Name: "Txn/PrefixCondition", Needs: transaction, Run: run(txnPrefixCondition),
		Promise: "A condition on a prefix has to be true of every key that begins so; of none it is true if it is of an absent key."},
	{Name: "Txn/OneRevision", Needs: transaction, Run: run(txnOneRevision),
		Promise: "All changes of a transaction have one revision, which it returns."},
	{Name: "Txn/AllOrNothing", Needs: transaction, Run: run(txnAllOrNothing),
		Promise: "A transaction with an operation that is refused does none of the others."},
	{Name: "Txn/NobodySeesHalf", Needs: transaction, Run: run(txnNobodySeesHalf),
		Promise: "Nobody sees a transaction half done, and of two that meet one does not undo the other."},
	{Name: "Txn/SeesItself", Needs: transaction, Run: run(txnSeesItself),
		Promise: "The operations of a transaction run in order, each seeing those before it."},
	{Name: "Txn/DeleteRange", Needs: transaction, Run: run(txnDeleteRange),
		Promise: "A transaction deletes all keys with a prefix and tells how many, and with Previous which."},
	{Name: "KV/DeleteRange", Needs: transaction, Run: run(kvDeleteRange),
		Promise: "DeleteRange deletes all keys with a prefix, however many, and tells how many."},
}

func txnAllConditions(ctx context.Context, e *Env) {
	s := e.Client().KV()
	rev := must(s.Put(ctx, "a", []byte("1")))
	res := must(s.Txn(ctx, holdfast.Txn{
		If:   []holdfast.Compare{holdfast.ModifiedAt("a", rev), holdfast.Absent("b")},
		Then: []holdfast.Op{holdfast.PutOp("b", []byte("then"))},
		Else: []holdfast.Op{holdfast.PutOp("c", nil)},
	}))
	want(res.OK && len(res.Results) == 1, "with true conditions the result is %+v", res)
	res = must(s.Txn(ctx, holdfast.Txn{
		If:   []holdfast.Compare{holdfast.Absent("b"), holdfast.ModifiedAt("a", rev)},
		Then: []holdfast.Op{holdfast.PutOp("b", []byte("again"))},
		Else: []holdfast.Op{holdfast.GetOp("b"), holdfast.GetOp("absent")},
	}))
	want(!res.OK && len(res.Results) == 2, "with one false condition the result is %+v", res)
	want(len(res.Results[0].Entries) == 1 && string(res.Results[0].Entries[0].Value) == "then", "Else found %+v", res.Results[0])
	want(len(res.Results[1].Entries) == 0, "Else found %+v under a key that is absent", res.Results[1])
	refused(second(s.Get(ctx, "c")), fs.ErrNotExist, "Get of a key of the branch that did not run")
}

// holds asks whether a condition is true.
func holds(ctx context.Context, s *holdfast.KV, c holdfast.Compare) bool {
	return must(s.Txn(ctx, holdfast.Txn{
		If:   []holdfast.Compare{c},
		Then: []holdfast.Op{holdfast.GetOp("k"), holdfast.GetOp("other")},
		Else: []holdfast.Op{holdfast.GetOp("k"), holdfast.GetOp("other")},
	})).OK
}

func txnConditions(ctx context.Context, e *Env) {
	s := e.Client().KV()
	created := must(s.Create(ctx, "k", []byte("m")))
	modified := must(s.Put(ctx, "k", []byte("m")))
	for target, is := range map[driver.Target]uint64{
		driver.CompareMod: uint64(modified), driver.CompareCreate: uint64(created), driver.CompareVersion: 2,
	} {
		for _, key := range []string{"k", "absent"} {
			number := is
			if key == "absent" {
				number = 0
			}
			for _, c := range []uint64{0, is - 1, is, is + 1} {
				checkRelations(ctx, s, holdfast.Compare{Key: key, Target: target, Num: c}, compareTo(number, c))
			}
		}
	}
	for _, v := range []string{"", "a", "m", "ma", "z"} {
		checkRelations(ctx, s, holdfast.Compare{Key: "k", Target: driver.CompareValue, Value: []byte(v)}, strings.Compare("m", v))
	}
	want(!holds(ctx, s, holdfast.Compare{Key: "absent", Target: driver.CompareValue, Is: driver.Equal}), "the value of an absent key is equal to an empty one")
}

func compareTo(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// checkRelations asks for all four relations; order is that of the key to c.
func checkRelations(ctx context.Context, s *holdfast.KV, c holdfast.Compare, order int) {
	for is, wanted := range map[driver.Relation]bool{
		driver.Equal: order == 0, driver.NotEqual: order != 0, driver.Less: order < 0, driver.Greater: order > 0,
	} {
		c.Is = is
		want(holds(ctx, s, c) == wanted, "the condition %+v is %v", c, !wanted)
	}
}

func txnPrefixCondition(ctx context.Context, e *Env) {
	s := e.Client().KV()
	version := func(prefix string, n uint64) holdfast.Compare {
		return holdfast.Compare{Key: prefix, Prefix: true, Target: driver.CompareVersion, Num: n}
	}
	must(s.Put(ctx, "p/a", nil))
	must(s.Put(ctx, "p/b", nil))
	must(s.Put(ctx, "q", nil))
	must(s.Put(ctx, "q", nil))
	want(holds(ctx, s, version("p/", 1)), "a condition that is true of every key is false")
	want(!holds(ctx, s, version("", 1)), "a condition that is false of one key is true")
	want(holds(ctx, s, version("none/", 0)), "no key is not like an absent one")
	want(!holds(ctx, s, version("none/", 1)), "a condition on no key is true of a number above 0")
}

func txnOneRevision(ctx context.Context, e *Env) {
	s := e.Client().KV()
	before := must(s.Put(ctx, "a", nil))
	res := must(s.Txn(ctx, holdfast.Txn{Then: []holdfast.Op{
		holdfast.PutOp("a", []byte("x")).WithPrevious(), holdfast.PutOp("b", nil), holdfast.PutOp("c", nil),
	}}))
	want(res.Revision > before, "the transaction took the revision %d, after %d", res.Revision, before)
	for _, key := range []string{"a", "b", "c"} {
		want(must(s.Get(ctx, key)).Modified == res.Revision, "%s is at %d, the transaction at %d", key, must(s.Get(ctx, key)).Modified, res.Revision)
	}
	prev := res.Results[0].Entries
	want(len(prev) == 1 && prev[0].Modified == before, "Previous tells %+v", prev)
}

func txnAllOrNothing(ctx context.Context, e *Env) {
	s := e.Client().KV()
	for _, bad := range []holdfast.Op{holdfast.PutOp(strings.Repeat("x", 513), nil), holdfast.PutOp("x\x00", nil), holdfast.PutOp("b", nil, holdfast.Expire(-1))} {
		err := second(s.Txn(ctx, holdfast.Txn{Then: []holdfast.Op{holdfast.PutOp("a", nil), bad}}))
		refused(err, fs.ErrInvalid, "a transaction with a bad operation")
		want(holdfast.NotDone(err), "NotDone is false for %v", err)
	}
	refused(second(s.Get(ctx, "a")), fs.ErrNotExist, "Get of a key of a refused transaction")
	must(s.Txn(ctx, holdfast.Txn{Then: []holdfast.Op{holdfast.PutOp("a", nil), holdfast.PutOp("b", nil)}}))
	want(must(s.Page(ctx, "")).Count == 2, "a transaction of two puts made %q", listed(must(s.Page(ctx, ""))))
}

func txnNobodySeesHalf(ctx context.Context, e *Env) {
	clients := []*holdfast.KV{e.Client().KV(), e.Client().KV()}
	must(clients[0].Txn(ctx, holdfast.Txn{Then: []holdfast.Op{holdfast.PutOp("x", []byte("50")), holdfast.PutOp("y", []byte("50"))}}))
	together(8, func(i int) {
		s := clients[i%2]
		for range 10 {
			move(ctx, s)
			x, y := both(ctx, s)
			want(number(x)+number(y) == 100, "there are %s and %s of 100", x.Value, y.Value)
		}
	})
	x, y := both(ctx, clients[0])
	want(number(y) == 130 && number(x) == -30, "80 moves of 1 from 50 to 50 gave %s and %s", x.Value, y.Value)
}

// both reads x and y in one step.
func both(ctx context.Context, s *holdfast.KV) (x, y holdfast.Entry) {
	res := must(s.Txn(ctx, holdfast.Txn{Then: []holdfast.Op{holdfast.GetOp("x"), holdfast.GetOp("y")}}))
	want(len(res.Results) == 2 && len(res.Results[0].Entries) == 1 && len(res.Results[1].Entries) == 1, "reading x and y found %+v", res)
	return res.Results[0].Entries[0], res.Results[1].Entries[0]
}

// move takes 1 from x to y, trying again while others do.
func move(ctx context.Context, s *holdfast.KV) {
	for {
		x, y := both(ctx, s)
		res := must(s.Txn(ctx, holdfast.Txn{
			If: []holdfast.Compare{holdfast.ModifiedAt("x", x.Modified), holdfast.ModifiedAt("y", y.Modified)},
			Then: []holdfast.Op{
				holdfast.PutOp("x", strconv.AppendInt(nil, number(x)-1, 10)),
				holdfast.PutOp("y", strconv.AppendInt(nil, number(y)+1, 10)),
			},
		}))
		if res.OK {
			return
		}
	}
}

func number(entry holdfast.Entry) int64 {
	return must(strconv.ParseInt(string(entry.Value), 10, 64))
}

func txnSeesItself(ctx context.Context, e *Env) {
	s := e.Client().KV()
	must(s.Put(ctx, "a", []byte("old")))
	res := must(s.Txn(ctx, holdfast.Txn{Then: []holdfast.Op{
		holdfast.GetOp("a"), holdfast.PutOp("a", []byte("new")), holdfast.GetOp("a"), holdfast.DeleteOp("a"), holdfast.GetOp("a"), holdfast.GetOp("b"),
	}}))
	want(len(res.Results) == 6, "six operations have %d results", len(res.Results))
	want(string(res.Results[0].Entries[0].Value) == "old", "before the put a is %q", res.Results[0].Entries[0].Value)
	want(len(res.Results[2].Entries) == 1 && string(res.Results[2].Entries[0].Value) == "new", "after the put a is %+v", res.Results[2])
	want(len(res.Results[4].Entries) == 0, "after the delete a is %+v", res.Results[4])
	refused(second(s.Get(ctx, "a")), fs.ErrNotExist, "Get after the transaction")
}

func txnDeleteRange(ctx context.Context, e *Env) {
	s := e.Client().KV()
	for _, key := range []string{"p/a", "p/b", "q"} {
		must(s.Put(ctx, key, []byte(key)))
	}
	res := must(s.Txn(ctx, holdfast.Txn{Then: []holdfast.Op{holdfast.DeleteRangeOp("p/").WithPrevious(), holdfast.DeleteRangeOp("none/")}}))
	want(res.Results[0].Count == 2, "of 2 keys %d were deleted", res.Results[0].Count)
	want(len(res.Results[0].Entries) == 2 && string(res.Results[0].Entries[1].Value) == "p/b", "Previous tells %+v", res.Results[0].Entries)
	want(res.Results[1].Count == 0, "of no keys %d were deleted", res.Results[1].Count)
	want(must(s.Page(ctx, "")).Count == 1, "what is left are %q", listed(must(s.Page(ctx, ""))))
}

func kvDeleteRange(ctx context.Context, e *Env) {
	s := e.Client().KV()
	const txns, each = 24, 50 // more than one page
	for i := range txns {
		var t holdfast.Txn
		for j := range each {
			t.Then = append(t.Then, holdfast.PutOp("p/"+strconv.Itoa(each*i+j), nil))
		}
		must(s.Txn(ctx, t))
	}
	must(s.Put(ctx, "q", []byte("stays")))
	n := must(s.DeleteRange(ctx, "p/"))
	want(n == txns*each, "of %d keys %d were deleted", txns*each, n)
	n = must(s.DeleteRange(ctx, "p/"))
	want(n == 0, "of no keys %d were deleted", n)
	want(string(must(s.Get(ctx, "q")).Value) == "stays", "a key without the prefix was changed")
	_, err := s.Get(ctx, "p/7")
	refused(err, fs.ErrNotExist, "Get of a deleted key")
}
