//go:build unix

package pghold_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/pghold"
)

// Of windows too, keys that are not used any more are removed by those that are new, and a
// key that is made again is not taken for the one that was removed.
func TestLimitKeysOfWindows(t *testing.T) {
	url := database(t)
	look := connect(t, url)
	l := open(t, url).Limiter("l", limit.Rate{Count: 5, Per: time.Hour, Algorithm: limit.FixedWindow})
	for i := range 20 {
		must(l.Allow(t.Context(), fmt.Sprint(i)))(t)
	}
	var before, after, left int64
	scan(t, look, &before, "select v from holdfast.usage where key = '7'")
	_, err := look.Exec(t.Context(), "delete from holdfast.usage where key = '7'")
	check(t, err)
	must(l.Allow(t.Context(), "7"))(t)
	scan(t, look, &after, "select v from holdfast.usage where key = '7'")
	if before == after {
		t.Error("a key that was removed and made again looks as if it had not been changed")
	}
	_, err = look.Exec(t.Context(), "update holdfast.usage set idle = 1")
	check(t, err)
	for i := range 10 {
		must(l.Allow(t.Context(), fmt.Sprint("new ", i)))(t)
	}
	if scan(t, look, &left, "select count(*) from holdfast.usage where key not like 'new %'"); left != 0 {
		t.Errorf("%d of 20 keys that are not used any more are left after 10 that are new", left)
	}
}

// A delete with a lost answer is not told as one of something that is not there, and of a
// limiter it removes what the keys used at all of its rates.
func TestDeleteWithoutAnAnswer(t *testing.T) {
	pg := services.PostgreSQL(t)
	at := pg.URL(pg.CreateDatabase(t))
	b, look := openPool(t, at, nil), connect(t, at)
	check(t, released(b.Mutex("schema").Acquire(t.Context())))
	s := scenario{"delete", deleteTrips, func(context.Context, *holdfast.Space, string) error { return nil }}
	p := newTripProxy(t, pg, 0, mishap{})
	runThrough(t, p, at, b, look, s, "count")
	trips, _ := p.seen()
	for n := range trips {
		name := fmt.Sprint("trip ", n)
		runThrough(t, newTripProxy(t, pg, n+1, mishaps[1]), at, b, look, s, name)
		var rows int
		if scan(t, look, &rows, "select count(*) from holdfast.usage where name = $1", name); rows != 0 {
			t.Errorf("%d rows are left when the answer of trip %d is lost", rows, n+1)
		}
	}
}

// A sweep removes what keys with an Initial used at rates of before, and nothing else.
func TestSweepRatesOfBefore(t *testing.T) {
	at := database(t)
	s, look := open(t, at), connect(t, at)
	rate := limit.Rate{Count: 10, Per: time.Hour, Initial: 1}
	l := s.Limiter("l", rate)
	for i := range 600 {
		must(l.Allow(t.Context(), fmt.Sprint("before ", i)))(t)
	}
	rate.Count = 20
	check(t, l.SetRate(t.Context(), rate))
	must(l.Allow(t.Context(), "now"))(t)
	pool := must(pgxpool.New(t.Context(), at))(t)
	t.Cleanup(pool.Close)
	d := must(pghold.New(pool, nil))(t)
	t.Cleanup(func() { check(t, d.Close(context.Background())) })
	var rows int
	reply := must(d.Sweep(t.Context(), &driver.SweepRequest{}))(t)
	if scan(t, look, &rows, "select count(*) from holdfast.usage where name = 'l'"); reply.Removed != 600 || rows != 1 {
		t.Errorf("%d rows were swept, %d are left", reply.Removed, rows)
	}
	if d := must(l.Allow(t.Context(), "now"))(t); d.Allowed {
		t.Errorf("what is used was swept: %+v", d)
	}
}

// TestTakeBesideSetRate: a request that has read the rate of before, and comes to its key
// after others have used it at the new one, is decided by the new one and undoes nothing.
func TestTakeBesideSetRate(t *testing.T) {
	for name, rate := range map[string]limit.Rate{
		"bucket": {Count: 10, Per: time.Hour},
		"log":    {Count: 10, Per: time.Hour, Algorithm: limit.SlidingLog},
	} {
		t.Run(name, func(t *testing.T) {
			at := database(t)
			s, look, locked := open(t, at), connect(t, at), connect(t, at)
			l := s.Limiter("l", limit.Rate{}) // at whatever rate it has
			check(t, s.Limiter("l", rate).SetRate(t.Context(), rate))
			must(l.Allow(t.Context(), "k"))(t)
			after := rate
			after.Count = 20
			used := stateAt(t, at, after)
			tx := must(locked.Begin(t.Context()))(t)
			_, err := tx.Exec(t.Context(), "lock table holdfast.usage in access exclusive mode")
			check(t, err)
			got := make(chan error, 1)
			go func() {
				d, err := l.Allow(t.Context(), "k")
				if err == nil && d.Allowed {
					err = fmt.Errorf("it was allowed by the rate of before: %+v", d)
				}
				got <- err
			}()
			for waits := 0; waits == 0; {
				scan(t, look, &waits, "select count(*) from pg_locks where relation = 'holdfast.usage'::regclass and not granted")
			}
			check(t, s.Limiter("l", after).SetRate(t.Context(), after))
			_, err = tx.Exec(t.Context(), `update holdfast.usage u set epoch = (select left(rate, 32) from holdfast.limiter where name = 'l'),
				at = $1, part = $2, rest = $3, v = v + 1 where name = 'l'`, used.at, used.part, used.rest)
			check(t, err)
			check(t, tx.Commit(t.Context()))
			if err := <-got; err != nil {
				t.Error(err)
			}
			if d := must(l.Allow(t.Context(), "k"))(t); d.Allowed {
				t.Errorf("what was used at the new rate was undone: %+v", d)
			}
		})
	}
}

// usedRow is a row of holdfast.usage.
type usedRow struct {
	at, part int64
	rest     *string
}

// stateAt is what a key has that has used all of a rate.
func stateAt(t *testing.T, at string, rate limit.Rate) (u usedRow) {
	t.Helper()
	l := open(t, at).Limiter("used", rate)
	must(l.AllowN(t.Context(), "k", rate.Count))(t)
	check(t, connect(t, at).QueryRow(t.Context(), "select at, part, rest from holdfast.usage where name = 'used'").Scan(&u.at, &u.part, &u.rest))
	return u
}

// TestLimitClockSetBack: a key that was used when the server's clock was far ahead is closed for a window, not until then.
func TestLimitClockSetBack(t *testing.T) {
	at := database(t)
	s, look := open(t, at), connect(t, at)
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.SlidingLog} {
		l := s.Limiter(a.String(), limit.Rate{Count: 3, Per: time.Second, Algorithm: a})
		must(l.AllowN(t.Context(), "k", 3))(t)
		tag, err := look.Exec(t.Context(), `update holdfast.usage set rest = regexp_replace(rest, '"at":1', '"at":4', 'g') where name = $1`, a.String())
		if check(t, err); tag.RowsAffected() != 1 {
			t.Fatalf("%s: %d keys were used", a, tag.RowsAffected())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if d := must(l.Peek(ctx, "k", 1))(t); d.Allowed {
			t.Errorf("%s: %+v", a, d)
		}
		if err := l.WaitN(ctx, "k", 3); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
}

// What removes old rows beside other work looks at those only, however many are there: also in a connection
// that has planned it while the table was empty.
func TestSweepsLookAtFew(t *testing.T) {
	url := database(t)
	look := connect(t, url)
	must(open(t, url).Limiter("l", limit.Rate{Count: 5, Per: time.Hour}).Allow(t.Context(), "k"))(t)
	for _, s := range []struct{ table, sweep, fill string }{
		{"usage", "select holdfast_v10.sweep_usage('', 3)", `insert into holdfast.usage (name, key, epoch, at, part, given, leased, v, idle)
			select 'l', n::text, '', 0, 0, 0, 0, 1, case when n <= 2 then 1 else holdfast_v10.limit_now() end from generate_series(1, 5000) n`},
		{"done", "select holdfast_v10.sweep_done(3)", `insert into holdfast.done (id, value, ok, at)
			select gen_random_uuid(), 1, true, case when n <= 2 then 'epoch' else clock_timestamp() end from generate_series(1, 5000) n`},
	} {
		var removed, seen int64
		tx, err := look.Begin(t.Context())
		check(t, err)
		for range 10 { // from the sixth on, a function keeps its plan
			check(t, tx.QueryRow(t.Context(), s.sweep).Scan(&removed))
		}
		_, err = tx.Exec(t.Context(), s.fill)
		check(t, err)
		const read = "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where schemaname = 'holdfast' and relname = $1"
		var before int64
		check(t, tx.QueryRow(t.Context(), read, s.table).Scan(&before))
		check(t, tx.QueryRow(t.Context(), s.sweep).Scan(&removed))
		check(t, tx.QueryRow(t.Context(), read, s.table).Scan(&seen))
		check(t, tx.Rollback(t.Context()))
		if seen -= before; removed != 2 || seen > 100 {
			t.Errorf("%s: of 5,000 rows, 2 of them old, %d were removed, and %d looked at", s.table, removed, seen)
		}
	}
}
