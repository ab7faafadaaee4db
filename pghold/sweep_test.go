package pghold_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
)

// TestSweepManyRows: thousands of idle semaphores and old answers are removed page by
// page, and nothing else: latches, limits of other prefixes and in use, and answers
// that may still be asked for.
func TestSweepManyRows(t *testing.T) {
	url := database(t)
	s, look := open(t, url), connect(t, url)
	used := must(s.Semaphore("a-used", 2).Acquire(t.Context(), 1))(t)
	check(t, released(s.Semaphore("b-other", 2).Acquire(t.Context(), 1)))
	must(s.Latch("a-latch", 2).CountDown(t.Context(), 1))(t)
	const many = 5000
	_, err := look.Exec(t.Context(), fmt.Sprintf(`insert into holdfast.resource (space, key, name, kind, lim, made)
		select 1, i, 'a-' || i, case when i %% 2 = 0 then 3 else 6 end, 1, 1 from generate_series(1, %[1]d) i;
		insert into holdfast.done (id, value, ok, at) select gen_random_uuid(), 1, true, clock_timestamp() - interval '11 minutes' from generate_series(1, %[1]d)`, many))
	check(t, err)
	d, err := driver.Open(t.Context(), url)
	check(t, err)
	defer d.Close(t.Context())
	sweep := func(limits bool, want int64) {
		t.Helper()
		reply, err := d.Sweep(t.Context(), &driver.SweepRequest{Prefix: "a-", Limits: limits})
		if err != nil || reply.Removed != want {
			t.Errorf("a sweep (limits %t) removed %d, %v; want %d", limits, reply.Removed, err, want)
		}
	}
	var rows, answers int
	sweep(false, 0)
	scan(t, look, &answers, "select count(*) from holdfast.done")
	if answers != 1 {
		t.Errorf("%d answers are left; want that of the latch", answers)
	}
	sweep(true, many)
	sweep(true, 0)
	scan(t, look, &rows, "select count(*) from holdfast.resource")
	if rows != 3 {
		t.Errorf("%d names are left; want the one in use, the latch and the one of another prefix", rows)
	}
	check(t, used.Release())
	sweep(true, 1)
}
