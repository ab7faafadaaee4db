package pghold

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// TestReleasesGoTogether: holds of a semaphore that are given back while their connection is busy go in as few statements as
// there may be; each hears of its own, and one that had ended before is told so.
func TestReleasesGoTogether(t *testing.T) {
	const many = maxReleases/5 + 1
	c := quickClients(t, 1)[0]
	claims := make([]*rowClaim, many)
	for i := range claims {
		claims[i] = take(t, c, &driver.Request{Wants: []driver.Want{{Name: "s", Kind: driver.Semaphore, Weight: 1, Limit: many}}, Lost: func(error) {}})
	}
	look := stranger(t, c)
	exec(t, look, "create table public.statement ()")
	exec(t, look, `create function count_statement() returns trigger language plpgsql as $$
begin insert into public.statement default values; return null; end $$`)
	exec(t, look, "delete from holdfast.claim where id = $1", claims[0].id)
	exec(t, look, "create trigger counted after delete on holdfast.claim for each statement execute function count_statement()")
	l, gate := claims[0].l, make(chan struct{})
	busy := l.start(time.Minute, func(ctx context.Context) error {
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return nil
	})
	var all sync.WaitGroup
	for i, cl := range claims {
		all.Go(func() {
			if err := cl.Release(t.Context()); errors.Is(err, driver.ErrLost) != (i == 0) || i > 0 && err != nil {
				t.Errorf("release %d: %v", i, err)
			}
		})
	}
	for end := time.Now().Add(time.Minute); joined(l, claims[0].key) < many; {
		if time.Now().After(end) {
			t.Fatal("not all have come")
		}
		runtime.Gosched()
	}
	close(gate)
	<-busy.done
	all.Wait()
	var statements, left int
	if err := look.QueryRow(t.Context(), "select (select count(*) from public.statement), (select count(*) from holdfast.claim)").Scan(&statements, &left); err != nil {
		t.Fatal(err)
	}
	if statements != 1 || left != 0 || len(l.releases) != 0 {
		t.Errorf("%d holds are given back in %d statements; %d are left, %d batches are open", many, statements, left, len(l.releases))
	}
}

// joined is how many releases wait for the link together.
func joined(l *pgLink, k Key) int {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if b := l.releases[k]; b != nil {
		return len(b.ids)
	}
	return 0
}

// TestReleasesInBatches: no statement gives back more than so many.
func TestReleasesInBatches(t *testing.T) {
	l, key := &pgLink{c: &client{}, releases: map[Key]*releases{}}, mustKey(t, "s")
	batches := map[*releases]bool{}
	for i := range 2*maxReleases + 1 {
		b, first := l.joinReleases(&rowClaim{key: key, id: int64(i)})
		if first == batches[b] {
			t.Fatalf("release %d begins a batch: %t", i, first)
		}
		batches[b] = true
	}
	if len(batches) != 3 {
		t.Errorf("%d batches", len(batches))
	}
	for b := range batches {
		if ids := l.closeReleases(key, b); len(ids) > maxReleases {
			t.Errorf("%d together", len(ids))
		}
	}
	if len(l.releases) != 0 {
		t.Error("a batch stays")
	}
}
