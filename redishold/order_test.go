package redishold_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// fill puts n keys "k/…", many at a time.
func fill(t *testing.T, s *holdfast.Space, n int, value func(i int) []byte) {
	t.Helper()
	var ops []holdfast.Op
	for i := range n {
		ops = append(ops, holdfast.PutOp(fmt.Sprintf("k/%05d", i), value(i)))
		if len(ops) == 128 || i == n-1 {
			if _, err := s.KV().Txn(t.Context(), holdfast.Txn{Then: ops}); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
	}
}

// ranged is what a range yields.
func ranged(t *testing.T, s *holdfast.Space, opts ...holdfast.RangeOption) (all []holdfast.Entry, err error) {
	for e, err := range s.KV().Range(t.Context(), "k/", opts...) {
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// TestOrderOfBytes: by value, and by a number that many share, with the key behind it, in
// both directions, whatever the bytes are.
func TestOrderOfBytes(t *testing.T) {
	s := open(t, services.Redis(t).URL())
	long := strings.Repeat("\x00", 400)
	values := []string{"b", "", "\xff", long + "b", "a", long + "a", "é", "B", "b", long, "a\x00", "\x00", long + "a"}
	fill(t, s, len(values), func(i int) []byte { return []byte(values[i]) })
	want, err := ranged(t, s)
	if err != nil || len(want) != len(values) {
		t.Fatalf("%d keys, %v", len(want), err)
	}
	for name, c := range map[string]struct {
		by    holdfast.Order
		order func(a, b holdfast.Entry) int
	}{
		"value":    {holdfast.ByValue, func(a, b holdfast.Entry) int { return bytes.Compare(a.Value, b.Value) }},
		"modified": {holdfast.ByModified, func(a, b holdfast.Entry) int { return 0 }},
	} {
		want := slices.Clone(want)
		slices.SortStableFunc(want, c.order)
		told(t, name, want, s, c.by)
		told(t, name+", 5", want[:5], s, c.by, holdfast.MaxKeys(5))
		slices.Reverse(want)
		told(t, name+", down", want, s, c.by, holdfast.Descending())
		told(t, name+", down, keys", want[:3], s, c.by, holdfast.Descending(), holdfast.MaxKeys(3), holdfast.KeysOnly())
	}
}

// told: a range yields these keys.
func told(t *testing.T, what string, want []holdfast.Entry, s *holdfast.Space, opts ...holdfast.RangeOption) {
	t.Helper()
	got, err := ranged(t, s, opts...)
	same := slices.EqualFunc(got, want, func(a, b holdfast.Entry) bool { return a.Key == b.Key })
	if err != nil || !same {
		t.Errorf("%s: %v, %v; want %v", what, got, err, want)
	}
}

// TestTransactionsAreBounded: what would keep the server for long is refused with advice,
// and changes nothing.
func TestTransactionsAreBounded(t *testing.T) {
	s := open(t, services.Redis(t).URL())
	fill(t, s, 2501, func(int) []byte { return bytes.Repeat([]byte("v"), 400) })
	big := bytes.Repeat([]byte("v"), 1<<20)
	for i := range 9 {
		if _, err := s.KV().Put(t.Context(), fmt.Sprint("big/", i), big); err != nil {
			t.Fatal(err)
		}
	}
	bigs := holdfast.ValueIs("big/", big)
	bigs.Prefix = true
	byValue, put := holdfast.RangeOp("k/", holdfast.ByValue, holdfast.MaxKeys(1)), holdfast.PutOp("new", nil)
	for name, c := range map[string]struct {
		txn    holdfast.Txn
		kind   error
		advice string
	}{
		"sorting 1 MB":         {holdfast.Txn{Then: []holdfast.Op{byValue}}, holdfast.ErrExhausted, "1 MiB"},
		"writing, and sorting": {holdfast.Txn{Then: []holdfast.Op{put, byValue}}, holdfast.ErrExhausted, "1 MiB"},
		"comparing 9 MiB":      {holdfast.Txn{If: []holdfast.Compare{bigs}, Then: []holdfast.Op{put}}, holdfast.ErrExhausted, "8 MiB"},
		"deleting 2,501":       {holdfast.Txn{Then: []holdfast.Op{put, holdfast.DeleteRangeOp("k/")}}, holdfast.ErrExhausted, "DeleteRange"},
		"129 operations":       {holdfast.Txn{Then: slices.Repeat([]holdfast.Op{put}, 129)}, fs.ErrInvalid, "at most 128"},
	} {
		_, err := s.KV().Txn(t.Context(), c.txn)
		if !errors.Is(err, c.kind) || !holdfast.NotDone(err) || !strings.Contains(err.Error(), c.advice) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.KV().Get(t.Context(), "new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused transaction has put a key: %v", err)
	}
	told(t, "by version", []holdfast.Entry{{Key: "k/02500"}}, s, holdfast.ByVersion, holdfast.Descending(), holdfast.MaxKeys(1))
}
