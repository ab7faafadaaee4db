package pghold_test

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/pghold"
)

// TestUpgradeDropsNothing: functions that programs of an earlier version call stay.
func TestUpgradeDropsNothing(t *testing.T) {
	url := database(t)
	look := connect(t, url)
	_, err := look.Exec(t.Context(), `create schema holdfast;
		create function holdfast.bury(smallint, bigint, smallint) returns int language sql as 'select 1';
		create function holdfast.arrive(smallint, bigint, text, smallint, smallint, bigint, uuid, text, bytea, bytea, boolean, boolean, boolean)
			returns int language sql as 'select 1';
		comment on schema holdfast is 'holdfast 4'`, pgx.QueryExecModeSimpleProtocol)
	check(t, err)
	check(t, released(open(t, url).Mutex("m").Acquire(t.Context())))
	var left int
	scan(t, look, &left, "select count(*) from pg_proc where pronamespace = 'holdfast'::regnamespace")
	if left != 2 {
		t.Errorf("%d of the 2 functions that others call are left", left)
	}
}

// TestVersionsSideBySide: a program goes on under the schema of a later version, and
// another one of its own version begins.
func TestVersionsSideBySide(t *testing.T) {
	url := database(t)
	s := open(t, url)
	held := must(s.Mutex("m").Acquire(t.Context()))(t)
	next := waiting(t, s, "m")
	later := strings.ReplaceAll(pghold.Schema, "holdfast_v10", "holdfast_v11")
	_, err := connect(t, url).Exec(t.Context(), later, pgx.QueryExecModeSimpleProtocol)
	check(t, err)
	check(t, held.Release())
	check(t, granted(t, next).Release())
	another := open(t, url)
	check(t, released(another.Semaphore("s", 2).Acquire(t.Context(), 1)))
	check(t, released(s.Semaphore("s", 2).Acquire(t.Context(), 1)))
	for _, s := range []*holdfast.Space{s, another} {
		must(s.Limiter("l", limit.Rate{Count: 3, Per: time.Hour}).Allow(t.Context(), "k"))(t)
	}
	var allowed bool // the third, as a program of the later version asks for it
	scan(t, connect(t, url), &allowed, `select t.allowed from holdfast.limiter l, holdfast_v11.limit_take(l.name, 'k', l.rate, '', 3,
		1200000000000, 0, 3600000000000, 0, 0, 0, 0, 0, true) t where l.name = 'l'`)
	if d := must(another.Limiter("l", limit.Rate{}).Allow(t.Context(), "k"))(t); !allowed || d.Allowed {
		t.Errorf("of 3 the third by a program of a later version: %t, the fourth: %+v", allowed, d)
	}
}

// version9 is what programs of the version before run.
//
//go:embed testdata/holdfast_v9.sql
var version9 string

// TestBesideVersion9: a program of the version before, on the same tables, waits for this one's and is
// waited for, is woken, and sees keys and has its own seen.
func TestBesideVersion9(t *testing.T) {
	url := database(t)
	old, ctx := connect(t, url), t.Context()
	must(old.Exec(ctx, version9, pgx.QueryExecModeSimpleProtocol))(t)
	must(old.Exec(ctx, "select pg_advisory_lock(4711); listen holdfast; insert into holdfast.session values ('"+id9+"', 4711, 'old', '', 0)",
		pgx.QueryExecModeSimpleProtocol))(t)
	s := open(t, url)
	m := must(s.Mutex("m").Acquire(ctx))(t)
	var state string
	scan(t, old, &state, "select state from holdfast_v9.arrive(2::smallint, $1, 'm', 1::smallint, 0::smallint, 4711, $2, '', '', null, true, false, false, 0)", single(t, "m"), id9)
	if state != "held" {
		t.Errorf("a mutex that is held is %s for version 9", state)
	}
	check(t, m.Release())
	shareWithVersion9(t, s, old)
	must(s.KV().Put(ctx, "new", nil))(t)
	must(connect(t, url).Exec(ctx, "update holdfast.revision set n = n + 1; select holdfast_v9.kv_put('old', '', '"+id9+"', null, 0); select holdfast_v9.sweep()",
		pgx.QueryExecModeSimpleProtocol))(t)
	d := must(driver.Open(ctx, url))(t)
	defer d.Close(context.Background())
	must(d.Sweep(ctx, &driver.SweepRequest{}))(t)
	if n := must(s.KV().Page(ctx, ""))(t).Count; n != 2 {
		t.Errorf("of 2 keys of two versions there are %d", n)
	}
}

const id9 = "00000000-0000-0000-0000-000000004711"

// shareWithVersion9: a semaphore goes to version 9, and from it.
func shareWithVersion9(t *testing.T, s *holdfast.Space, old *pgx.Conn) {
	t.Helper()
	ctx, key := t.Context(), single(t, "s")
	first := must(s.Semaphore("s", 1).Acquire(ctx, 1))(t)
	var id, token int64
	scan(t, old, &id, "select place from holdfast_v9.gather(2::smallint, $1, 's', 3::smallint, 0::smallint, 1, 1, 4711, $2, '', '', true, 0)", key, id9)
	check(t, first.Release())
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for heard := ""; heard != fmt.Sprint("w 2 ", key); {
		heard = must(old.WaitForNotification(patient))(t).Payload
	}
	scan(t, old, &token, "select tok from holdfast_v9.look(2::smallint, $1, array[$2::bigint], 4711, true)", key, id)
	granted := make(chan error, 1)
	go func() { granted <- released(s.Semaphore("s", 1).Acquire(ctx, 1)) }()
	eventually(t, "nobody waits for version 9", func() (waits bool) {
		scan(t, old, &waits, "select exists (select from holdfast.claim where key = $1 and token = 0)", key)
		return waits
	})
	must(old.Exec(ctx, "select holdfast_v9.drop_gathered(2::smallint, $1, $2, 4711, null)", key, id))(t)
	if err := <-granted; err != nil || token == 0 {
		t.Errorf("version 9 was granted %d, and then this one %v", token, err)
	}
}

// TestUpgradeWaitsForNobody: what has to be added to tables that others use is tried again, and
// the others have their turn meanwhile.
func TestUpgradeWaitsForNobody(t *testing.T) {
	url := database(t)
	old, look := connect(t, url), connect(t, url)
	must(old.Exec(t.Context(), version9, pgx.QueryExecModeSimpleProtocol))(t)
	must(old.Exec(t.Context(), "begin; delete from holdfast.claim", pgx.QueryExecModeSimpleProtocol))(t)
	s, upgraded := open(t, url), make(chan error, 1)
	go func() { upgraded <- released(s.Mutex("m").Acquire(t.Context())) }()
	waits := func(yes bool) func() bool {
		return func() (is bool) {
			scan(t, look, &is, "select exists (select from pg_locks where not granted and relation = 'holdfast.claim'::regclass)")
			return is == yes
		}
	}
	eventually(t, "the upgrade does not wait for the table", waits(true))
	eventually(t, "the upgrade keeps others from the table", waits(false))
	must(old.Exec(t.Context(), "commit"))(t)
	check(t, <-upgraded)
}

// TestClaimsAreFoundByTheirPlace: an index finds the claim of a name by its place in the queue, also where an earlier version
// made one without: each step of a claim would look at all claims on the name. It is made beside programs that have
// read the table, as waiters of that version have.
func TestClaimsAreFoundByTheirPlace(t *testing.T) {
	for what, before := range map[string]string{"new": "", "of version 9": version9} {
		url := database(t)
		look := connect(t, url)
		if before != "" {
			must(look.Exec(t.Context(), before, pgx.QueryExecModeSimpleProtocol))(t)
			must(look.Exec(t.Context(), "begin; select from holdfast.claim", pgx.QueryExecModeSimpleProtocol))(t)
		}
		check(t, released(open(t, url).Mutex("m").Acquire(t.Context())))
		var columns []string
		scan(t, look, &columns, `select array_agg(a.attname::text order by a.attnum) from pg_attribute a where a.attrelid = 'holdfast.claim_place'::regclass`)
		if !slices.Equal(columns, []string{"space", "key", "id"}) {
			t.Errorf("%s: the index has %v", what, columns)
		}
	}
}

// single is the advisory lock of a short name, in one number.
func single(t *testing.T, name string) int64 {
	t.Helper()
	n, _ := must(pghold.ParseKey(name, true))(t).Single()
	return n
}

// TestLaterTablesAreRefused, with a text that says what to do.
func TestLaterTablesAreRefused(t *testing.T) {
	url := database(t)
	check(t, released(open(t, url).Mutex("m").Acquire(t.Context())))
	_, err := connect(t, url).Exec(t.Context(), "comment on schema holdfast is 'holdfast 99'")
	check(t, err)
	if _, err := open(t, url).Mutex("m").Acquire(t.Context()); err == nil || !containsAll(err.Error(), "version 99", "update the program") {
		t.Errorf("later tables are answered with %v", err)
	}
}

// functionsSum is of the functions in the released schema of this version, without comments, which
// may be mended. When they change after a release, write the next version for "holdfast_v10" in all of the package.
const functionsSum = "20f7b265fbc47071"

// TestFunctionsHaveTheirVersion: every function is in the schema with the version, and
// a version does not change.
func TestFunctionsHaveTheirVersion(t *testing.T) {
	_, functions, _ := strings.Cut(pghold.Schema, "create or replace function")
	for _, f := range regexp.MustCompile(`(?m)^create or replace function (\S+)\(`).FindAllStringSubmatch(pghold.Schema, -1) {
		if !strings.HasPrefix(f[1], "holdfast_v10.") {
			t.Errorf("%s is not in the schema of its version", f[1])
		}
	}
	if regexp.MustCompile(`(?m)^\s*drop `).MatchString(pghold.Schema) {
		t.Error("Schema drops something that others may use")
	}
	functions = regexp.MustCompile(`(?m)\s*--.*$`).ReplaceAllString(functions, "")
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(functions))); sum[:16] != functionsSum {
		t.Errorf("the functions have changed: their sum is %s, and was %s", sum[:16], functionsSum)
	}
}
