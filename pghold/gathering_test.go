package pghold_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestWaitersShareALook: of many that wait in a program for one semaphore not each looks whenever one
// of them is granted.
func TestWaitersShareALook(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	name := pg.CreateDatabase(t)
	url := pg.URL(name)
	look := connect(t, url)
	must(look.Exec(t.Context(), fmt.Sprintf("alter database %s set track_functions = 'pl'", name)))(t)
	s := must(holdfast.Open(t.Context(), url))(t)
	const many = 100
	first := must(s.Semaphore("s", 1).Acquire(t.Context(), 1))(t)
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			if err := released(s.Semaphore("s", 1).Acquire(context.Background(), 1)); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "not all wait", func() bool {
		r, err := s.Inspect(t.Context(), "s")
		return err == nil && r.Waiting == many
	})
	check(t, first.Release())
	all.Wait()
	check(t, s.Close()) // with its connections it tells what they counted
	const each = 5      // many/2, if each looks
	eventually(t, "no calls are counted", func() bool {
		var looks int
		scan(t, look, &looks, "select coalesce(sum(calls), 0) from pg_stat_user_functions where funcname = 'look'")
		if looks > each*many {
			t.Fatalf("%d waiters looked %d times", many, looks)
		}
		return looks > 0
	})
}

// TestListAsksOnceAPage: a page of List costs no round trip for each name that has a limit.
func TestListAsksOnceAPage(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	p := newTripProxy(t, pg, 0, mishap{})
	s := open(t, p.URL(url))
	h := must(s.Semaphore("a", 2).Acquire(t.Context(), 1))(t)
	must(connect(t, url).Exec(t.Context(), `insert into holdfast.resource (space, key, name, kind, lim, made)
		select 1, i, 'a-' || i, 3, i, 1 from generate_series(1, 300) i`))(t)
	before, _ := p.seen()
	limits := int64(0)
	for r, err := range s.List(t.Context(), "a") {
		check(t, err)
		limits += r.Limit
		if r.Name == "a" && (len(r.Holders) != 1 || r.Limit != 2) {
			t.Errorf("listed: %+v", r)
		}
	}
	if limits != 300*301/2+2 {
		t.Errorf("the limits of 301 names are %d together", limits)
	}
	if after, _ := p.seen(); after-before > 100 {
		t.Errorf("a list of 301 names took %d round trips", after-before)
	}
	check(t, h.Release())
}
