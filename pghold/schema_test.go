package pghold_test

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast"
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
	later := strings.ReplaceAll(pghold.Schema, "holdfast_v8", "holdfast_v9")
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
	scan(t, connect(t, url), &allowed, `select t.allowed from holdfast.limiter l, holdfast_v9.limit_take(l.name, 'k', l.rate, '', 3,
		1200000000000, 0, 3600000000000, 0, 0, 0, 0, 0, true) t where l.name = 'l'`)
	if d := must(another.Limiter("l", limit.Rate{}).Allow(t.Context(), "k"))(t); !allowed || d.Allowed {
		t.Errorf("of 3 the third by a program of a later version: %t, the fourth: %+v", allowed, d)
	}
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

// functionsSum is of the functions in the released schema of this version. When they
// change after a release, write the next version for "holdfast_v8" in all of the package.
const functionsSum = "cd8ee24defbd3f7f"

// TestFunctionsHaveTheirVersion: every function is in the schema with the version, and
// a version does not change.
func TestFunctionsHaveTheirVersion(t *testing.T) {
	_, functions, _ := strings.Cut(pghold.Schema, "create or replace function")
	for _, f := range regexp.MustCompile(`(?m)^create or replace function (\S+)\(`).FindAllStringSubmatch(pghold.Schema, -1) {
		if !strings.HasPrefix(f[1], "holdfast_v8.") {
			t.Errorf("%s is not in the schema of its version", f[1])
		}
	}
	if regexp.MustCompile(`(?m)^drop `).MatchString(pghold.Schema) {
		t.Error("Schema drops something that others may use")
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(functions))); sum[:16] != functionsSum {
		t.Errorf("the functions have changed: their sum is %s, and was %s", sum[:16], functionsSum)
	}
}
