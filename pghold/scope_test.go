package pghold_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestPgBouncer: through transaction pooling the session scope is refused with
// the way out, and the transaction scope works; through session pooling both do.
func TestPgBouncer(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	db := pg.CreateDatabase(t)
	direct := open(t, pg.URL(db))
	pooled := services.PgBouncer(t, pg, services.TransactionPooling)
	_, err := open(t, pooled.URL(db)).Mutex("m").Acquire(t.Context())
	refused(t, err, errors.ErrUnsupported)
	if !containsAll(err.Error(), "PgBouncer", "holdfast_scope=transaction", "acquire") {
		t.Errorf("the text does not say the way out: %v", err)
	}
	check(t, must(direct.Mutex("m").TryAcquire(t.Context()))(t).Release())
	exclude(t, direct, open(t, pooled.URL(db)+"&holdfast_scope=transaction"), open(t, pooled.URL(db)+"&holdfast_scope=transaction"))
	whole := services.PgBouncer(t, pg, services.SessionPooling)
	exclude(t, direct, open(t, whole.URL(db)), open(t, whole.URL(db)+"&holdfast_scope=transaction"))
}

// TestTransactionScope: holds that live in transactions exclude, wait, share and
// are lost like the others.
func TestTransactionScope(t *testing.T) {
	url := database(t)
	s := open(t, url+"&holdfast_scope=transaction")
	exclude(t, open(t, url), s, open(t, url+"&holdfast_scope=transaction"))
	look := connect(t, url)
	h := must(s.Mutex("m").Acquire(t.Context()))(t)
	check(t, must(s.RWMutex("rw").Reader().Acquire(t.Context()))(t).Release())
	sem := must(s.Semaphore("s", 3).Acquire(t.Context(), 2))(t)
	check(t, sem.Release())
	must(s.KV().Txn(t.Context(), holdfast.Txn{Then: []holdfast.Op{holdfast.PutOp("a", nil), holdfast.PutOp("b", nil)}}))(t)
	must(s.Counter("c").Add(t.Context(), 1))(t)
	var killed bool
	scan(t, look, &killed, "select pg_terminate_backend($1)", holderOf(t, look, "m"))
	<-h.Done()
	refused(t, h.Err(), holdfast.ErrLost)
	check(t, must(s.Mutex("m").Acquire(t.Context()))(t).Release())
	for _, err := range s.Watch(t.Context(), "", 0) {
		refused(t, err, errors.ErrUnsupported)
	}
}

// TestTransactionScope_TryBeyondWaits: a try does not wait for holds of its own program that have all
// connections, nor for another caller that does.
func TestTransactionScope_TryBeyondWaits(t *testing.T) {
	t.Parallel()
	s := open(t, database(t)+"&holdfast_scope=transaction&holdfast_waits=1&holdfast_timeout=3s")
	h := must(s.Mutex("a").Acquire(t.Context()))(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var waiter sync.WaitGroup
	waiter.Go(func() {
		if _, err := s.Mutex("b").Acquire(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v; want the end of its context", err)
		}
	})
	for _, name := range []string{"b", "c"} {
		_, err := s.Mutex(name).TryAcquire(ctx)
		refused(t, err, holdfast.ErrExhausted)
		if !containsAll(err.Error(), "Waits", "holdfast_waits") {
			t.Errorf("the text does not say the way out: %v", err)
		}
	}
	cancel()
	waiter.Wait()
	check(t, h.Release())
	check(t, must(s.Mutex("c").TryAcquire(t.Context()))(t).Release())
}

// exclude has Spaces of different scopes take turns.
func exclude(t *testing.T, spaces ...*holdfast.Space) {
	t.Helper()
	for i, s := range spaces {
		h := must(s.Mutex("turns").Acquire(t.Context()))(t)
		for _, other := range spaces {
			_, err := other.Mutex("turns").TryAcquire(t.Context())
			refused(t, err, holdfast.ErrHeld)
		}
		next := waiting(t, spaces[(i+1)%len(spaces)], "turns")
		check(t, h.Release())
		got := granted(t, next)
		if got.Token() <= h.Token() {
			t.Errorf("the next token is %d after %d", got.Token(), h.Token())
		}
		check(t, got.Release())
	}
	var all sync.WaitGroup
	inside := 0
	for i := range 24 {
		all.Go(func() {
			err := spaces[i%len(spaces)].Mutex("turns").Do(t.Context(), func(context.Context, *holdfast.Hold) error {
				inside++
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if inside != 24 {
		t.Errorf("%d of 24 were inside", inside)
	}
}
