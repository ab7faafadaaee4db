package gateway

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
)

// One key is one key, however often it is used: the limit is for keys. Each is
// forgotten its time after it was used last, not before, and one with which nothing
// was done takes no place.
func TestMemo_CountsKeys(t *testing.T) {
	var m memo
	now := time.Unix(1, 0)
	for range 2*memoLimit + 1 {
		if _, err := m.add(keySession("default", "the one"), now); err != nil {
			t.Fatal(err)
		}
	}
	for i := range memoLimit - 1 {
		if fresh, err := m.add(keySession("default", strconv.Itoa(i)), now.Add(time.Second)); err != nil || !fresh {
			t.Fatalf("key %d: %v %v", i, fresh, err)
		}
	}
	another := keySession("default", "one too many")
	_, err := m.add(another, now.Add(time.Second))
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || e.Kind != driver.ErrExhausted || e.RetryAfter != memoTTL-time.Second {
		t.Fatalf("refused with %v", err)
	}
	if fresh, err := m.add(keySession("default", "the one"), now.Add(time.Minute)); fresh || err != nil {
		t.Errorf("a known key: %v %v", fresh, err)
	}
	if _, err := m.add(another, now.Add(memoTTL)); err == nil {
		t.Error("a key was forgotten before its time")
	}
	m.drop(keySession("default", "5"))
	if _, err := m.add(another, now.Add(memoTTL)); err != nil {
		t.Error(err)
	}
	if _, err := m.add(keySession("default", "later"), now.Add(memoTTL+2*time.Second)); err != nil || len(m.known) != 3 {
		t.Errorf("%d keys are left, %v", len(m.known), err)
	}
}

// After its call was turned down a key does that call when it comes again, and no other: that
// one is refused before anything is done.
func TestMemo_AnotherRequestAfterARefusal(t *testing.T) {
	g, ctx := alone(t), t.Context()
	add := func(name string) core.Command {
		return core.Command{Op: core.OpCount, Name: name, Count: core.CountAdd, A: 1}
	}
	id := keySession("default", "k")
	open := core.Command{Op: core.OpOpen, Namespace: "default", TTL: int64(memoTTL), Owner: "idempotency key", Meta: fingerprint(add("a"))}
	g.askAnew(ctx, id, open, 1)
	if _, _, err := g.doKeyed(ctx, "k", add("b")); !errors.Is(err, driver.ErrConflict) || !notDone(err) {
		t.Errorf("another call under the key: %v", err)
	}
	for range 2 {
		if r, _, err := g.doKeyed(ctx, "k", add("a")); err != nil || r.Number != 1 {
			t.Errorf("the call that was turned down: %d, %v", r.Number, err)
		}
	}
	if r, _, err := g.doKeyed(ctx, "l", add("b")); err != nil || r.Number != 1 {
		t.Errorf("the other call has counted: %d, %v", r.Number, err)
	}
}
