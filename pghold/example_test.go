package pghold_test

import (
	"context"
	"fmt"
	"log"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/pghold"
)

// A program with a pool of its own, and another that only has a URL, take turns.
func Example() {
	ctx := context.Background()
	url, done := exampleURL() // postgres://user@host/database
	defer done()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close() // the Space never closes it
	d, err := pghold.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	mine, err := holdfast.New(d, holdfast.Owner("mine"))
	if err != nil {
		log.Fatal(err)
	}
	defer mine.Close()
	theirs, err := holdfast.Open(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer theirs.Close()

	err = mine.Mutex("jobs/nightly").Do(ctx, func(ctx context.Context, h *holdfast.Hold) error {
		_, err := theirs.Mutex("jobs/nightly").TryAcquire(ctx)
		he, ok := err.(*holdfast.Error)
		fmt.Println("held by", he.Holders[0].Owner, ok && holdfast.Token(he.Holders[0].Token) == h.Token())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	n, err := theirs.Counter("runs").Add(ctx, 1)
	fmt.Println(n, err)
	// Output:
	// held by mine true
	// 1 <nil>
}

// exampleURL is a database of the example's own.
func exampleURL() (url string, done func()) {
	t := &exampleTB{}
	pg := services.SharedPostgreSQL(t)
	return pg.URL(pg.CreateDatabase(t)), func() {
		for _, f := range t.cleanups {
			f()
		}
	}
}

// exampleTB is as much of a test as an example needs to be to get a server.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (*exampleTB) Helper()                   {}
func (*exampleTB) Context() context.Context  { return context.Background() }
func (*exampleTB) Logf(string, ...any)       {}
func (*exampleTB) Errorf(f string, a ...any) { log.Printf(f, a...) }
func (*exampleTB) Fatalf(f string, a ...any) { log.Fatalf(f, a...) }
func (*exampleTB) Fatal(a ...any)            { log.Fatal(a...) }
func (t *exampleTB) Cleanup(f func())        { t.cleanups = append(t.cleanups, f) }
