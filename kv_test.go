package holdfast_test

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

func put(t *testing.T, k *holdfast.KV, key, value string, opts ...holdfast.PutOption) holdfast.Revision {
	t.Helper()
	rev, err := k.Put(t.Context(), key, []byte(value), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func TestKV_OneKey(t *testing.T) {
	s, _ := open(t)
	ctx, k := t.Context(), s.KV()
	_, err := k.Get(ctx, "a")
	wantErr(t, err, fs.ErrNotExist)
	rev := put(t, k, "a", "1")
	e, err := k.Get(ctx, "a")
	if err != nil || e.Key != "a" || string(e.Value) != "1" || e.Created != rev || e.Modified != rev || e.Version != 1 {
		t.Errorf("got %+v, %v", e, err)
	}
	_, err = k.Create(ctx, "a", nil)
	wantErr(t, err, holdfast.ErrConflict)
	if !holdfast.NotDone(err) {
		t.Error("a failed compare is not NotDone")
	}
	rev2, err := k.CompareAndSwap(ctx, "a", rev, []byte("2"))
	if err != nil || rev2 <= rev {
		t.Errorf("swap: %d, %v", rev2, err)
	}
	_, err = k.CompareAndSwap(ctx, "a", rev, []byte("3"))
	wantErr(t, err, holdfast.ErrConflict)
	_, err = k.CompareAndDelete(ctx, "a", rev)
	wantErr(t, err, holdfast.ErrConflict)
	_, err = k.CompareAndDelete(ctx, "a", 0)
	wantInvalid(t, err, "revision 0")
	if _, err := k.CompareAndDelete(ctx, "a", rev2); err != nil {
		t.Error(err)
	}
	if _, err := k.CompareAndSwap(ctx, "a", 0, nil); err != nil {
		t.Errorf("0 is no key: %v", err)
	}
	if deleted, err := k.Delete(ctx, "a"); !deleted || err != nil {
		t.Errorf("Delete: %t, %v", deleted, err)
	}
	if deleted, err := k.Delete(ctx, "a"); deleted || err != nil {
		t.Errorf("second Delete: %t, %v", deleted, err)
	}
	if _, err := k.Create(ctx, "a", nil); err != nil {
		t.Error(err)
	}
}

func TestKV_Options(t *testing.T) {
	s, toy := open(t)
	put(t, s.KV(), "a", "", holdfast.Expire(time.Minute))
	if toy.keys["a"].ExpiresIn != time.Minute {
		t.Errorf("expires in %s", toy.keys["a"].ExpiresIn)
	}
	ses := session(t, s)
	put(t, s.KV(), "b", "", holdfast.Under(ses))
	if e, err := s.KV().Get(t.Context(), "b"); e.Session != ses.ID() || err != nil {
		t.Errorf("session %s, %v", e.Session, err)
	}
	for _, d := range []time.Duration{0, -1, 5} {
		_, err := s.KV().Put(t.Context(), "a", nil, holdfast.Expire(d))
		wantInvalid(t, err, "Expire(")
	}
}

func TestKV_Page(t *testing.T) {
	s, _ := open(t)
	k := s.Sub("cfg/").KV()
	put(t, s.KV(), "other", "")
	for _, key := range []string{"b", "c", "a"} {
		put(t, k, key, "v"+key)
	}
	tests := map[string]struct {
		opts []holdfast.RangeOption
		want string
		more bool
	}{
		"all":     {nil, "abc", false},
		"limit":   {[]holdfast.RangeOption{holdfast.MaxKeys(2)}, "ab", true},
		"newest":  {[]holdfast.RangeOption{holdfast.ByModified, holdfast.Descending(), holdfast.MaxKeys(1)}, "a", true},
		"by time": {[]holdfast.RangeOption{holdfast.ByModified}, "bca", false},
	}
	for name, tt := range tests {
		page, err := k.Page(t.Context(), "", append(tt.opts, holdfast.Counted())...)
		keys := ""
		for _, e := range page.Entries {
			keys += e.Key
		}
		if err != nil || keys != tt.want || page.More != tt.more || page.Count != 3 || page.Revision == 0 {
			t.Errorf("%s: %+v, %v", name, page, err)
		}
	}
	_, err := k.Page(t.Context(), "", holdfast.MaxKeys(-1))
	wantInvalid(t, err, "MaxKeys(-1)")
	_, err = k.Page(t.Context(), "", holdfast.ByValue, holdfast.AfterKey("a"))
	wantInvalid(t, err, "AfterKey(")
	if p, err := k.Page(t.Context(), "", holdfast.MaxKeys(2)); err != nil || p.Count != 2 || p.Next != "b" {
		t.Errorf("not asked to count: %+v, %v", p, err)
	}
	page, err := k.Page(t.Context(), "none")
	if err != nil || len(page.Entries) != 0 {
		t.Errorf("nothing there: %+v, %v", page, err)
	}
}

// Range reads as many pages as there are, and no more than are wanted.
func TestKV_Range(t *testing.T) {
	s, toy := open(t)
	k := s.Sub("cfg/").KV()
	put(t, s.KV(), "other", "")
	put(t, s.KV(), "cfg", "")
	for _, key := range []string{"g", "f", "e", "d", "c", "b", "a"} {
		put(t, k, key, "v"+key)
	}
	toy.answer = 3
	tests := map[string]struct {
		opts []holdfast.RangeOption
		want string
	}{
		"all":        {nil, "abcdefg"},
		"down":       {[]holdfast.RangeOption{holdfast.Descending()}, "gfedcba"},
		"limit":      {[]holdfast.RangeOption{holdfast.MaxKeys(5)}, "abcde"},
		"one page":   {[]holdfast.RangeOption{holdfast.MaxKeys(3)}, "abc"},
		"high limit": {[]holdfast.RangeOption{holdfast.MaxKeys(100)}, "abcdefg"},
		"after":      {[]holdfast.RangeOption{holdfast.AfterKey("b"), holdfast.MaxKeys(4)}, "cdef"},
		"down after": {[]holdfast.RangeOption{holdfast.AfterKey("f"), holdfast.Descending()}, "edcba"},
		"by time":    {[]holdfast.RangeOption{holdfast.ByModified}, "gfedcba"},
	}
	for name, tt := range tests {
		keys := ""
		for e, err := range k.Range(t.Context(), "", tt.opts...) {
			if err != nil || string(e.Value) != "v"+e.Key {
				t.Fatalf("%s: %+v, %v", name, e, err)
			}
			keys += e.Key
		}
		if keys != tt.want {
			t.Errorf("%s: %s, want %s", name, keys, tt.want)
		}
	}
	for e, err := range k.Range(t.Context(), "") {
		if err != nil || e.Key == "d" {
			break // a reader that has enough is asked no more
		}
	}
	_, err := rangeEnd(k.Range(t.Context(), "", holdfast.MaxKeys(-1)))
	wantInvalid(t, err, "MaxKeys(-1)")
	ctx, cancel := context.WithCancel(t.Context())
	n, err := rangeEnd(func(yield func(holdfast.Entry, error) bool) {
		for e, err := range k.Range(ctx, "") {
			if cancel(); !yield(e, err) {
				return
			}
		}
	})
	if n != 3 || !errors.Is(err, context.Canceled) {
		t.Errorf("after %d keys of a cancelled Range: %v", n, err)
	}
	toy.answer = -1
	if n, err := rangeEnd(k.Range(t.Context(), "")); n != 0 || !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("of a backend that says more and tells none: %d keys, %v", n, err)
	}
}

// A key that is the prefix of a Sub Space has an empty name there, and a Range goes on behind it.
func TestKV_RangeBehindTheOwnPrefix(t *testing.T) {
	s, toy := open(t)
	for _, key := range []string{"cfg/", "cfg/a", "cfg/b"} {
		put(t, s.KV(), key, "")
	}
	toy.answer = 1
	told := 0
	for e, err := range s.Sub("cfg/").KV().Range(t.Context(), "") {
		if told++; told > 3 || err != nil { // it could begin anew for ever
			t.Fatalf("%q is told as number %d of 3, %v", e.Key, told, err)
		}
	}
	if told != 3 {
		t.Errorf("%d of 3 keys are told", told)
	}
}

// rangeEnd is how many entries there are, and the error at their end.
func rangeEnd(seq iter.Seq2[holdfast.Entry, error]) (n int, err error) {
	for _, err = range seq {
		if err == nil {
			n++
		}
	}
	return n, err
}

// A caller that asks for all of a name or a session gets all, however little one answer takes.
func TestPagesAreJoined(t *testing.T) {
	s, toy := open(t)
	sub := s.Sub("x/")
	sem := sub.Semaphore("s", 5)
	var holds []*holdfast.Hold
	for range 5 {
		h, err := sem.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		holds = append(holds, h)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits, over := make(chan int, 1), make(chan struct{})
	go func() {
		defer close(over)
		_, _ = sub.Semaphore("s", 5, holdfast.OnWait(func(p int) { waits <- p })).Acquire(ctx, 1)
	}()
	<-waits
	ses := session(t, sub)
	for _, key := range []string{"a", "b", "c"} {
		put(t, sub.KV(), key, "", holdfast.Under(ses))
	}
	toy.answer = 2
	r, err := sub.Inspect(t.Context(), "s")
	if err != nil || len(r.Holders) != 5 || len(r.Waiters) != 1 || r.Holding != 5 || r.Waiting != 1 || r.More || r.Name != "s" {
		t.Errorf("%+v, %v", r, err)
	}
	if keys, err := ses.Keys(t.Context()); err != nil || strings.Join(keys, "") != "abc" {
		t.Errorf("keys %q, %v", keys, err)
	}
	before := toy.called("session info")
	if _, err := ses.TimeToLive(t.Context()); err != nil || toy.called("session info") != before+1 {
		t.Errorf("the time to live takes %d answers, %v", toy.called("session info")-before, err)
	}
	cancel()
	<-over
	for _, h := range holds {
		if err := h.Release(); err != nil {
			t.Error(err)
		}
	}
}

func TestKV_Txn(t *testing.T) {
	s, _ := open(t)
	ctx, k := t.Context(), s.Sub("t/").KV()
	put(t, k, "from", "10")
	move := holdfast.Txn{
		If: []holdfast.Compare{
			{Key: "from", Target: driver.CompareValue, Is: driver.Equal, Value: []byte("10")},
			holdfast.Absent("to"),
		},
		Then: []holdfast.Op{holdfast.DeleteOp("from").WithPrevious(), holdfast.PutOp("to", []byte("10"))},
		Else: []holdfast.Op{holdfast.GetOp("to"), holdfast.RangeOp("")},
	}
	res, err := k.Txn(ctx, move)
	if err != nil || !res.OK || len(res.Results) != 2 || res.Results[0].Entries[0].Key != "from" || res.Revision == 0 {
		t.Errorf("then: %+v, %v", res, err)
	}
	res, err = k.Txn(ctx, move)
	if err != nil || res.OK || string(res.Results[0].Entries[0].Value) != "10" || res.Results[1].Entries[0].Key != "to" {
		t.Errorf("else: %+v, %v", res, err)
	}
	res, err = k.Txn(ctx, holdfast.Txn{Then: []holdfast.Op{holdfast.DeleteRangeOp("")}})
	if err != nil || res.Results[0].Count != 1 {
		t.Errorf("delete: %+v, %v", res, err)
	}
	_, err = k.Txn(ctx, holdfast.Txn{If: move.If})
	wantInvalid(t, err, "no operation")
	if move.If[1].Key != "to" {
		t.Error("the caller's transaction was changed")
	}
}

// Which transactions a backend without "txn" can do.
func TestKV_Txn_Feature(t *testing.T) {
	s := openOn(t, newToy(driver.FeatureKV))
	one := holdfast.ModifiedAt("a", 0)
	tests := map[string]struct {
		txn  holdfast.Txn
		want bool
	}{
		"one key":         {holdfast.Txn{If: []holdfast.Compare{one}, Then: []holdfast.Op{holdfast.PutOp("a", nil)}, Else: []holdfast.Op{holdfast.GetOp("a")}}, true},
		"one range":       {holdfast.Txn{Then: []holdfast.Op{holdfast.RangeOp("a")}}, true},
		"two keys":        {holdfast.Txn{If: []holdfast.Compare{one}, Then: []holdfast.Op{holdfast.PutOp("b", nil)}}, false},
		"delete a range":  {holdfast.Txn{Then: []holdfast.Op{holdfast.DeleteRangeOp("a")}}, false},
		"compare a range": {holdfast.Txn{If: []holdfast.Compare{{Key: "a", Prefix: true}}, Then: []holdfast.Op{holdfast.GetOp("a")}}, false},
		"range and key":   {holdfast.Txn{Then: []holdfast.Op{holdfast.RangeOp("a"), holdfast.GetOp("a")}}, false},
	}
	for name, tt := range tests {
		_, err := s.KV().Txn(t.Context(), tt.txn)
		if errors.Is(err, errors.ErrUnsupported) == tt.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
