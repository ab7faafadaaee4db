package onstore_test

import (
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/driver/onstore"
)

// FuzzStored gives the driver any bytes as what it has stored: every call
// answers, and none panics.
func FuzzStored(f *testing.F) {
	for _, s := range []string{"", "{", "null", `{"holder":"x","token":5,"ttl":1}`, `{"value":"18446744073709551615"}`, `{"value":"AQ==","version":3,"expire":-1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newStore(true)
		ctx := t.Context()
		for _, key := range []string{"l/x", "c/x", "q/x", "k/x"} {
			if _, err := s.Swap(ctx, key, 0, b); err != nil {
				t.Fatal(err)
			}
		}
		sp, err := holdfast.New(onstore.New(s, onstore.Options{Info: driver.Info{Scheme: "cas"}}))
		if err != nil {
			t.Fatal(err)
		}
		defer sp.Close()
		if h, err := sp.Mutex("x").TryAcquire(ctx); err == nil {
			_ = h.Release()
		}
		_, _ = sp.Counter("x").Add(ctx, 1)
		_, _ = sp.Sequence("x").Reserve(ctx, 1)
		_, _ = sp.KV().Get(ctx, "x")
		_, _ = sp.KV().Page(ctx, "")
		_, _ = sp.Inspect(ctx, "x")
	})
}
