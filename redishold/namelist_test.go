package redishold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// listed are the names that the server has in the lists of all sessions.
func listed(t *testing.T, ask func(words ...string) []string) (names []string) {
	t.Helper()
	for _, sid := range ask("SMEMBERS", "{holdfast}:sessions") {
		for _, f := range ask("HKEYS", "{holdfast}:s:"+sid) {
			if name, ok := strings.CutPrefix(f, "l"); ok {
				names = append(names, name)
			}
		}
	}
	return names
}

// TestGivenBackIsNotTakenAlong: a session's list keeps the name of a mutex that
// was given back, and when that session ends, the holder of the mutex by then keeps it.
func TestGivenBackIsNotTakenAlong(t *testing.T) {
	server := services.Redis(t)
	ttl := holdfast.TTL(10 * time.Minute)
	a, b, c := open(t, server.URL(), ttl), open(t, server.URL(), ttl), open(t, server.URL())
	session, err := a.Session(t.Context(), ttl, holdfast.ManualRenew())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*holdfast.Space{a, a.With(holdfast.Under(session))} {
		if err := acquire(t, s, "m").Release(); err != nil {
			t.Fatal(err)
		}
	}
	h := acquire(t, b, "m")
	if info, err := session.Info(t.Context()); err != nil || len(info.Names) > 0 {
		t.Errorf("the session that gave it back holds %q, %v", info.Names, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Mutex("m").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("another holder's mutex went with a session that once had it: %v", err)
	}
	if err := h.Release(); err != nil {
		t.Error(err)
	}
}

// TestPlacesAreBounded: a session's list does not grow with the names that it
// had, and what does not fit is held all the same, and found.
func TestPlacesAreBounded(t *testing.T) {
	server := services.Redis(t)
	rc, a, b := admin(t, server.URL()), open(t, server.URL(), holdfast.TTL(10*time.Minute)), open(t, server.URL())
	ask := func(words ...string) []string {
		list, err := rc.Do(t.Context(), rc.B().Arbitrary(words...).Build()).AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	const many = 600
	for i := range many {
		if err := acquire(t, a, fmt.Sprint("early-", i)).Release(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(listed(t, ask)); n != 256 {
		t.Errorf("the list has %d names after %d", n, many)
	}
	holds := make([]*holdfast.Hold, many)
	for i := range holds {
		holds[i] = acquire(t, a, fmt.Sprint("late-", i))
	}
	found := 0
	for r, err := range b.List(t.Context(), "late-") {
		if err != nil || len(r.Holders) != 1 {
			t.Errorf("the list has %+v, %v", r, err)
		}
		found++
	}
	if found != many {
		t.Errorf("%d of %d holds are listed", found, many)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range many {
		acquire(t, b, fmt.Sprint("late-", i))
	}
}

// TestHoldOfNobody: a mutex that a session had which the server has forgotten is
// free for the next.
func TestHoldOfNobody(t *testing.T) {
	server := services.Redis(t)
	rc, a, b := admin(t, server.URL()), open(t, server.URL(), holdfast.TTL(10*time.Minute)), open(t, server.URL())
	h := acquire(t, a, "m")
	for _, key := range []string{"sessions", "due"} {
		do(t, rc, "DEL", "{holdfast}:"+key)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	next, err := b.Mutex("m").Acquire(ctx)
	if err != nil {
		t.Fatalf("a mutex that nobody has: %v", err)
	}
	if next.Token() <= h.Token() {
		t.Errorf("the token %d follows %d", next.Token(), h.Token())
	}
}

// TestRepeatedGrantExtends: a caller that asks again for what it was granted the short way
// is answered as by the long one, and then its session lasts as long as it may
// take from that answer.
func TestRepeatedGrantExtends(t *testing.T) {
	server := services.Redis(t)
	rc, d := admin(t, server.URL()), raw(t, server.URL())
	r := mutex("m")
	first, err := d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	session := "s" + first.Session.ID.String()
	opened := do(t, rc, "ZSCORE", "{holdfast}:due", session)
	do(t, rc, "ZINCRBY", "{holdfast}:due", "-5000", session)
	again, err := d.Acquire(t.Context(), r)
	if err != nil || again.Token != first.Token {
		t.Fatalf("asked again: %+v, %v; want the token %d", again, err, first.Token)
	}
	if is := do(t, rc, "ZSCORE", "{holdfast}:due", session); is < opened {
		t.Errorf("the session ends at %s on the server, where %s was promised", is, opened)
	}
}
