package pghold

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// TestAfterCrash: "the next one is granted 50 ms later" (package comment): a lock is kept from its next holder if the one before did
// not give it back, having waited for it or not, is kept waiting, and may go.
func TestAfterCrash(t *testing.T) {
	c := quickClients(t, 3)
	c[2].graceAfterCrash = time.Hour
	for _, waits := range []bool{false, true} {
		dead := take(t, c[0], rwRequest("m"))
		granted := make(chan *rowClaim, 1)
		go func() {
			defer close(granted)
			if !waits {
				<-dead.l.down
			}
			g, err := c[1].Acquire(t.Context(), rwRequest("m"))
			if err != nil {
				t.Error(err)
				return
			}
			granted <- g.Handle.(*rowClaim)
		}()
		if waits {
			awaitQueue(t, c[1], "m")
		}
		dead.l.fail(errUnused)
		successor, ok := <-granted
		if !ok {
			return
		}
		if !successor.afterCrash {
			t.Errorf("waiting %t: the grant after a dead holder comes at once", waits)
		}
		free(t, successor)
		next := take(t, c[1], rwRequest("m"))
		if next.afterCrash {
			t.Errorf("waiting %t: the grant after a release is kept back", waits)
		}
		free(t, next)
	}

	dead := take(t, c[0], rwRequest("m"))
	dead.l.fail(errUnused)
	within(t, "the lock is not free", func() bool { return !held(t, c[1], dead.key) })
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := c[2].Acquire(ctx, rwRequest("m"))
		result <- err
	}()
	within(t, "nobody inherits", func() bool { return keeps(c[2]) == 1 })
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Fatalf("a grant that is kept back: %v", err)
	}
	if n := keeps(c[2]); n != 1 {
		t.Errorf("a successor has gone, and %d holds are kept until the one before has had its time", n)
	}
	if err := c[2].Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	within(t, "who closed has the lock", func() bool { return !held(t, c[1], dead.key) })
}

// keeps counts the holds that nobody gives back yet.
func keeps(c *client) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cl := range c.tokens {
		if !cl.giving.Load() {
			n++
		}
	}
	return n
}

// TestAfterCrash_CallerGone: a grant after a crash, of a caller that did not wait for the answer, keeps the lock
// for as long as any other, and no longer.
func TestAfterCrash_CallerGone(t *testing.T) {
	c := quickClients(t, 2)
	dead := take(t, c[0], rwRequest("m"))
	dead.l.fail(errUnused)
	within(t, "the lock is not free", func() bool { return !held(t, c[1], dead.key) })
	l, err := c[1].atHome(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cl := &rowClaim{c: c[1], r: rwRequest("m"), name: "m", key: dead.key, kind: driver.RWMutex, weigh: 1, released: make(chan struct{})}
	q := &arrival{l: l, cl: cl, session: c[1].sessionOn(l, cl.r)}
	begun := time.Now()
	c[1].undo(l.startAsking(&q.job, q), cl)
	if !cl.afterCrash || time.Since(begun) < graceAfterCrash {
		t.Errorf("the successor's caller has gone, and it gives back at once; after a crash: %t", cl.afterCrash)
	}
	within(t, "who went has the lock", func() bool { return !held(t, c[0], dead.key) })
}

// TestAfterCrash_EasyName: so is a caller that would take the name quickly, however the one
// that died got it. A program that has held long and lives goes on quickly.
func TestAfterCrash_EasyName(t *testing.T) {
	c := quickClients(t, 3)
	for how, hold := range map[string]func(name string) *rowClaim{
		"quickly": func(name string) *rowClaim { return takeQuickly(t, c[0], name) },
		"by row":  func(name string) *rowClaim { return take(t, c[0], mutexRequest(name)) },
		"waiting": func(name string) *rowClaim {
			before, got := take(t, c[2], mutexRequest(name)), make(chan *rowClaim, 1)
			go func() {
				g, err := c[0].Acquire(t.Context(), mutexRequest(name))
				if err != nil {
					t.Error(err)
				}
				cl, _ := g.Handle.(*rowClaim)
				got <- cl
			}()
			awaitQueue(t, c[1], name)
			free(t, before)
			return <-got
		},
	} {
		free(t, takeQuickly(t, c[1], how))
		dead := hold(how)
		if dead == nil {
			return
		}
		within(t, "who may take a name quickly does not hear that it is held "+how, func() bool { return c[1].living().isEasy(dead.key) == nil })
		dead.l.fail(errUnused)
		within(t, "the lock is not free", func() bool { return !held(t, c[1], dead.key) })
		successor := take(t, c[1], mutexRequest(how))
		if !successor.afterCrash {
			t.Errorf("held %s: the grant after a dead holder comes at once", how)
		}
		free(t, successor)
	}

	free(t, takeQuickly(t, c[1], "m"))
	long := takeQuickly(t, c[0], "m")
	within(t, "nobody hears of a long hold", func() bool { return c[1].living().isEasy(long.key) == nil })
	free(t, long)
	next := take(t, c[0], mutexRequest("m"))
	if next.since.IsZero() || next.afterCrash { // it may have got its row by now
		t.Error("the next grant of a program that has held long is not quick")
	}
	free(t, next)
}

// rwRequest is for a lock that is not taken quickly.
func rwRequest(name string) *driver.Request {
	return &driver.Request{Wants: []driver.Want{{Name: name, Kind: driver.RWMutex}}, Lost: func(error) {}}
}

// held: some connection has the lock.
func held(t *testing.T, c *client, k Key) (yes bool) {
	t.Helper()
	err := c.pool.QueryRow(t.Context(), "select exists (select from holdfast_v10.locks($1, $2))", k.space(), k.n).Scan(&yes)
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

// awaitQueue returns when somebody waits for the name.
func awaitQueue(t *testing.T, c *client, name string) {
	t.Helper()
	within(t, "nobody waits", func() bool {
		var n int
		err := c.pool.QueryRow(t.Context(), "select count(*) from holdfast.claim where name = $1 and token = 0", name).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
}
