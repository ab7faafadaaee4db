package pghold_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestURLIsLeftAsItIs: what is not ours reaches PostgreSQL as it is written.
func TestURLIsLeftAsItIs(t *testing.T) {
	url := database(t)
	s, look := open(t, url+"&application_name=a%20b+c&holdfast_waits=2"), connect(t, url)
	check(t, s.Ping(t.Context()))
	var n int
	if scan(t, look, &n, "select count(*) from pg_stat_activity where application_name = 'a b+c'"); n == 0 {
		t.Error("no connection has the name that the URL gives")
	}
}

// TestIsolation: a default that isolates more than PostgreSQL's own is refused
// before anything is made, and the URL can mend it.
func TestIsolation(t *testing.T) {
	url := database(t)
	admin := connect(t, url)
	_, err := admin.Exec(t.Context(), "alter database "+pgx.Identifier{admin.Config().Database}.Sanitize()+" set default_transaction_isolation = 'repeatable read'")
	check(t, err)
	_, err = open(t, url).Mutex("m").TryAcquire(t.Context())
	refused(t, err, errors.ErrUnsupported)
	var made bool
	if scan(t, admin, &made, "select to_regnamespace('holdfast') is not null"); made {
		t.Error("the schema was made")
	}
	h := must(open(t, url+"&default_transaction_isolation=read%20committed").Mutex("m").Acquire(t.Context()))(t)
	check(t, h.Release())
}
