package pghold_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast"
)

// refuseInserts has the server refuse new claims, with a SQLSTATE, until the function
// that it returns is called.
func refuseInserts(t testing.TB, conn *pgx.Conn, code string) func() {
	t.Helper()
	_, err := conn.Exec(t.Context(), fmt.Sprintf(`create or replace function public.refuse_new() returns trigger language plpgsql as
$$ begin raise exception 'not now' using errcode = '%s'; end $$;
create trigger refuse_new before insert on holdfast.claim for each row execute function public.refuse_new()`, code))
	check(t, err)
	return func() {
		t.Helper()
		_, err := conn.Exec(context.Background(), "drop trigger refuse_new on holdfast.claim")
		check(t, err)
	}
}

// TestRefusedReader: readers that the server refuses after their lock was taken, beside
// others of the program, leave nothing of it behind when those have gone.
func TestRefusedReader(t *testing.T) {
	url := database(t)
	a, b, look := open(t, url), open(t, url), connect(t, url)
	readers := a.RWMutex("r").Reader()
	holds := []*holdfast.Hold{must(readers.Acquire(t.Context()))(t), must(readers.Acquire(t.Context()))(t)}
	accept := refuseInserts(t, look, "53100")
	for range 3 {
		if h, err := readers.TryAcquire(t.Context()); err == nil {
			t.Fatalf("granted without a row: %v", h)
		}
	}
	accept()
	holds = append(holds, must(readers.Acquire(t.Context()))(t))
	for _, h := range holds {
		if pid := holderOf(t, look, "r"); pid == 0 {
			t.Fatal("a reader has gone, and the others hold nothing")
		}
		check(t, h.Release())
	}
	if pid := holderOf(t, look, "r"); pid != 0 {
		t.Errorf("all readers have gone, and process %d of the server has the lock", pid)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	check(t, must(b.RWMutex("r").Writer().Acquire(ctx))(t).Release())
}
