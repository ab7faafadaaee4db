package size

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/holdfast-io/holdfast"
)

// BenchmarkKeys is what a bystander sees beside work on very many keys.
func BenchmarkKeys(b *testing.B) { bench(b, besideKeys) }

func besideKeys(tb testing.TB, s size) figures {
	g := start(tb, s.nodes)
	k := &keys{tb, g.space().KV(), s.items, 100}
	k.fill()
	return g.beside([]work{
		idle(s.lasts),
		{"range", func(ctx context.Context) { k.whole(ctx) }},
		{"page", reading(tb, s.lasts, 4, k.page)},
		{"sort", reading(tb, s.lasts, 4, k.sorted)},
		g.saving(),
		{"purge", func(ctx context.Context) { k.purge(ctx) }},
		{"delete", func(ctx context.Context) { k.delete(ctx) }},
	})
}

// keys are numbered, each with a value of so many bytes.
type keys struct {
	tb       testing.TB
	kv       *holdfast.KV
	n, value int
}

// block is how many keys one permitted call deletes or sorts.
const block = 10_000

// name has the number of the block before that of the key, so that a block has a prefix.
func (k *keys) name(i int) string { return fmt.Sprintf("k/%05d/%04d", i/block, i%block) }

func (k *keys) block(i int) string { return fmt.Sprintf("k/%05d/", i) }

// perPut is how many keys one transaction puts, within its 64 KiB.
const perPut = 100

func (k *keys) fill() {
	k.tb.Helper()
	value := make([]byte, k.value)
	together(k.tb, (k.n+perPut-1)/perPut, func(ctx context.Context, i int) error {
		var t holdfast.Txn
		for j := i * perPut; j < min((i+1)*perPut, k.n); j++ {
			t.Then = append(t.Then, holdfast.PutOp(k.name(j), value))
		}
		_, err := k.kv.Txn(ctx, t)
		return err
	})
}

// whole reads all keys: none may be missing, or come twice.
func (k *keys) whole(ctx context.Context) {
	k.tb.Helper()
	next, stop := iter.Pull2(k.kv.Range(ctx, "k/"))
	defer stop()
	for i := range k.n {
		if e, err, ok := next(); !ok || err != nil || e.Key != k.name(i) || len(e.Value) != k.value {
			k.tb.Fatalf("the read of all keys has %q where %q belongs: %v", e.Key, k.name(i), err)
		}
	}
	if e, err, more := next(); more {
		k.tb.Fatalf("the read of all keys goes on with %q, %v", e.Key, err)
	}
}

// few is what a short read is limited to.
const few = 10

func (k *keys) page(ctx context.Context) error {
	p, err := k.kv.Page(ctx, "k/", holdfast.MaxKeys(few))
	if err == nil && len(p.Entries) != few {
		err = fmt.Errorf("a page has %d keys, want %d", len(p.Entries), few)
	}
	return err
}

// sorted is the dearest read that one call may ask for: it looks at a block to tell the last.
func (k *keys) sorted(ctx context.Context) error {
	_, err := k.kv.Page(ctx, k.block(0), holdfast.ByModified, holdfast.Descending(), holdfast.MaxKeys(few), holdfast.Counted())
	return err
}

// purge deletes the first half of the blocks, each by one call.
func (k *keys) purge(ctx context.Context) {
	for i := range k.n / block / 2 {
		_, err := k.kv.Txn(ctx, holdfast.Txn{Then: []holdfast.Op{holdfast.DeleteRangeOp(k.block(i))}})
		done(k.tb, err)
	}
}

// delete deletes what is left by a call of the API.
func (k *keys) delete(ctx context.Context) {
	want := int64(k.n - k.n/block/2*block)
	if n, err := k.kv.DeleteRange(ctx, "k/"); n != want || err != nil {
		k.tb.Errorf("DeleteRange deleted %d of %d keys: %v", n, want, err)
	}
}
