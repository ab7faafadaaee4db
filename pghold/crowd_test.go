package pghold_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast"
)

// statementsSQL counts the statements that change claims, one row each: a trigger for each statement, not for each row.
const statementsSQL = `create table public.statement (op text);
create function count_statement() returns trigger language plpgsql as $$ begin insert into public.statement values (tg_op); return null; end $$;
create trigger counted after update or delete on holdfast.claim for each statement execute function count_statement()`

// TestCrowdIsGrantedAtOnce: whatever opens a name for very many waiters grants it to all of them in one statement, in
// order of arrival.
func TestCrowdIsGrantedAtOnce(t *testing.T) {
	const many = 200
	url := database(t)
	s, look := open(t, url), connect(t, url)
	full := must(s.Semaphore("s", many).Acquire(t.Context(), many))(t)
	must(look.Exec(t.Context(), statementsSQL, pgx.QueryExecModeSimpleProtocol))(t)
	openings := map[string]struct {
		wait func() error
		open func() error
	}{
		"semaphore": {func() error { _, err := s.Semaphore("s", many).Acquire(context.Background(), 1); return err }, full.Release},
		"latch":     {func() error { return s.Latch("l", 1).Wait(context.Background()) }, func() error { _, err := s.Latch("l", 1).CountDown(t.Context(), 1); return err }},
	}
	for name, o := range openings {
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				if err := o.wait(); err != nil {
					t.Error(err)
				}
			})
		}
		eventually(t, "not all wait", func() bool {
			r, err := s.Inspect(t.Context(), name[:1])
			return err == nil && r.Waiting == many
		})
		must(look.Exec(t.Context(), "delete from public.statement"))(t)
		check(t, o.open())
		all.Wait()
		var updates int
		scan(t, look, &updates, "select count(*) from public.statement where op = 'UPDATE'")
		if updates != 1 {
			t.Errorf("%s: %d waiters are granted in %d statements", name, many, updates)
		}
	}
	inOrderOfArrival(t, must(s.Inspect(t.Context(), "s"))(t), look)
}

// inOrderOfArrival: the holders have tokens in the order of their rows.
func inOrderOfArrival(t *testing.T, r holdfast.Resource, look *pgx.Conn) {
	t.Helper()
	if len(r.Holders) == 0 || !slices.IsSortedFunc(r.Holders, func(a, b holdfast.Claim) int { return cmp.Compare(a.Token, b.Token) }) {
		t.Errorf("%d holders, not in order of token", len(r.Holders))
	}
	var disorder int
	scan(t, look, &disorder, "select count(*) from (select token < lag(token) over (order by id) as less from holdfast.claim where token > 0) x where less")
	if disorder > 0 {
		t.Errorf("%d holders have a token before that of an earlier arrival", disorder)
	}
}
