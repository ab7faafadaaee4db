package pghold_test

import (
	"context"
	"flag"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast"
)

var ordered = flag.Int64("pghold.ordered", 300, "how many grants TestOrderOfRows looks at")

// late is by how much an arrival has to be earlier than one that is granted before it, to count as overtaken.
const late = 10 * time.Millisecond

// arrivalsSQL keeps, of every grant that has a row, when it arrived: the row of a waiter, or the statement that was granted
// at once.
const arrivalsSQL = `create table public.granted (token bigint, arrived timestamptz);
create function keep_arrival() returns trigger language plpgsql as $$
begin insert into public.granted values (new.token, case when tg_op = 'UPDATE' then old.since else statement_timestamp() end); return null; end $$;
create trigger waited after update on holdfast.claim for each row when (old.token = 0 and new.token > 0) execute function keep_arrival();
create trigger came after insert on holdfast.claim for each row when (new.token > 0) execute function keep_arrival()`

// TestOrderOfRows: four programs with eight callers each are granted a mutex in the order in which the
// rows of their waiters arrived. A row has its time a moment before others can see it, which on a busy machine
// may be some milliseconds: one in a hundred may seem overtaken. How many grants overtook a call that had begun
// before is told only: a call that waits has its row some statements after it began.
func TestOrderOfRows(t *testing.T) {
	url := database(t)
	c, look := newCrowd(t, url, 4, 8), connect(t, url)
	must(c.programs[0].Inspect(t.Context(), "m"))(t) // makes the schema
	must(look.Exec(t.Context(), arrivalsSQL, pgx.QueryExecModeSimpleProtocol))(t)
	calls := c.timed(t, *ordered)
	rows := arrivals(t, look)
	t.Logf("overtook another by more than %v: %d of %d by their rows (by anything %d, longest %v), %d of %d by their calls (longest %v)", late,
		overtook(rows, late), len(rows), overtook(rows, 0), longest(rows), overtook(calls, late), len(calls), longest(calls))
	if len(rows) < int(*ordered)/2 {
		t.Errorf("%d of %d grants had a row", len(rows), len(calls))
	}
	if n := overtook(rows, late); n > len(rows)/100 {
		t.Errorf("%d of %d grants overtook a row that had arrived more than %v before", n, len(rows), late)
	}
}

// arrived is a grant.
type arrived struct {
	token int64
	at    time.Time
}

// timed takes turns until so many grants are made, and returns when their calls began, in order of token.
func (c *crowd) timed(t *testing.T, n int64) (calls []arrived) {
	var mu sync.Mutex
	var work sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	note := func(began time.Time, h *holdfast.Hold) {
		mu.Lock()
		defer mu.Unlock()
		if calls = append(calls, arrived{int64(h.Token()), began}); int64(len(calls)) >= n {
			cancel()
		}
	}
	for _, s := range c.programs {
		for range c.callers {
			work.Go(func() { timedTurns(ctx, t, s.Mutex("m"), note) })
		}
	}
	work.Wait()
	slices.SortFunc(calls, func(a, b arrived) int { return int(a.token - b.token) })
	return calls
}

func timedTurns(ctx context.Context, t *testing.T, m *holdfast.Mutex, note func(time.Time, *holdfast.Hold)) {
	for {
		began := time.Now()
		h, err := m.Acquire(ctx)
		if ctx.Err() != nil && err != nil {
			return
		}
		if err != nil {
			t.Errorf("acquire: %v", err)
			return
		}
		note(began, h)
		if err := h.Release(); err != nil {
			t.Errorf("release: %v", err)
		}
	}
}

func arrivals(t *testing.T, look *pgx.Conn) []arrived {
	rows, err := look.Query(t.Context(), "select token, arrived from public.granted order by token")
	check(t, err)
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (a arrived, err error) { return a, r.Scan(&a.token, &a.at) })
	check(t, err)
	return all
}

// overtook is how many of the grants, in order of token, came before another that had arrived earlier by more than d.
func overtook(all []arrived, d time.Duration) (n int) {
	for _, by := range leads(all) {
		if by > d {
			n++
		}
	}
	return n
}

func longest(all []arrived) time.Duration { return slices.Max(append(leads(all), 0)) }

// leads is by how much each grant arrived after the earliest of those that were granted after it.
func leads(all []arrived) []time.Duration {
	by := make([]time.Duration, len(all))
	for i := len(all) - 2; i >= 0; i-- {
		by[i] = max(all[i].at.Sub(all[i+1].at), all[i].at.Sub(all[i+1].at)+by[i+1])
	}
	return by
}
