package pghold

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// keepBusy keeps a link busy until the function returned is called.
func keepBusy(l *pgLink) (release func()) {
	stop := make(chan struct{})
	l.start(time.Minute, func(context.Context) error { <-stop; return nil })
	return func() { close(stop) }
}

// crowdOf are requests for names that may be taken quickly, of both kinds of keys.
func crowdOf(t *testing.T, c *client, n int) (requests []*driver.Request) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("m%d", i)
		if i%2 == 0 {
			name = fmt.Sprintf("a name that is hashed %d", i)
		}
		free(t, takeQuickly(t, c, name))
		requests = append(requests, mutexRequest(name))
	}
	return requests
}

// inLine waits until so many jobs are queued on a link.
func inLine(t *testing.T, l *pgLink, n int) {
	t.Helper()
	within(t, "the questions do not queue up", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue) >= n
	})
}

// TestManyInOneStatement: callers that find the connection busy share one statement to
// take their names, and one to give them back; each is granted with a token of its own,
// and one whose name is taken is told so.
func TestManyInOneStatement(t *testing.T) {
	c := quickClients(t, 2)
	c[0].recordHoldsAfter = time.Hour // no row comes meanwhile
	const n = 24
	requests := crowdOf(t, c[0], n)
	l := c[0].living()
	taken := take(t, c[1], requests[5])
	flag := takeQuickly(t, c[0], "the flag is taken") // which one statement of its own does
	requests[5] = tryRequest(requests[5].Wants[0].Name, driver.Mutex)
	release := keepBusy(l)
	type result struct {
		g   driver.Grant
		err error
	}
	results := make(chan result, n)
	for _, r := range requests {
		go func() {
			g, err := c[0].Acquire(t.Context(), r)
			results <- result{g, err}
		}()
	}
	inLine(t, l, n)
	release()
	tokens := map[driver.Token]bool{}
	var held []driver.Grant
	for range n {
		r := <-results
		switch {
		case r.err == nil && !tokens[r.g.Token]:
			tokens[r.g.Token], held = true, append(held, r.g)
		case !errors.Is(r.err, driver.ErrHeld):
			t.Errorf("got the token %d, %v", r.g.Token, r.err)
		}
	}
	if len(held) != n-1 {
		t.Errorf("%d of %d names were granted", len(held), n-1)
	}
	release = keepBusy(l)
	errs := make(chan error, len(held))
	for _, g := range held {
		go func() { errs <- g.Handle.Release(t.Context()) }()
	}
	inLine(t, l, len(held))
	release()
	for range held {
		if err := <-errs; err != nil {
			t.Errorf("a release: %v", err)
		}
	}
	free(t, flag)
	free(t, taken)
	for _, r := range requests {
		free(t, take(t, c[1], r))
	}
	for i := range fastGrantSQLs {
		if l.known[plurals[fastGrantSQLs[i][1]].sql] == nil {
			t.Errorf("every name was taken by a statement of its own, not by %s", plurals[fastGrantSQLs[i][1]].sql)
		}
	}
}

// TestPack: questions of one form are one statement, and others one each.
func TestPack(t *testing.T) {
	c := quickClients(t, 1)[0]
	l := home(t, c)
	var jobs []*job
	for i := range 40 {
		key := Key{n: int64(i), pair: i%2 == 0}
		cl := &rowClaim{c: c, l: l, key: key, easy: l.newEasy(key)}
		cl.rowless.Store(i%10 != 9)
		jobs = append(jobs, &job{ask: &fastGrant{l: l, cl: cl}}, &job{ask: &unlocking{cl: cl}})
	}
	var got int
	<-l.start(time.Minute, func(ctx context.Context) error {
		l.mu.Lock()
		l.unrecorded.flag = true
		l.mu.Unlock()
		errs := map[*job]error{}
		parcels := l.pack(ctx, jobs, errs)
		if got = len(parcels); len(errs) > 0 {
			t.Errorf("%v", errs)
		}
		return nil
	}).done
	if want := 4 + 4; got != want { // the four forms, and the holds with a row
		t.Errorf("%d statements; want %d", got, want)
	}
}

// TestManyThatFail: if a statement for many fails, every one of them is asked alone, and
// no lock stays that nobody knows of.
func TestManyThatFail(t *testing.T) {
	c := quickClients(t, 2)
	c[0].recordHoldsAfter = time.Hour
	const n = 6
	requests := crowdOf(t, c[0], n)
	l := c[0].living()
	flag := takeQuickly(t, c[0], "the flag is taken")
	conn := stranger(t, c[1])
	var last int64
	if err := conn.QueryRow(t.Context(), "select last_value from holdfast.token").Scan(&last); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, fmt.Sprintf("alter sequence holdfast.token maxvalue %d", last+1)) // the second of a statement fails
	release := keepBusy(l)
	errs := make(chan error, n)
	for _, r := range requests {
		go func() {
			_, err := c[0].Acquire(t.Context(), r)
			errs <- err
		}()
	}
	inLine(t, l, n)
	release()
	failed := 0
	for range n {
		if err := <-errs; err != nil {
			failed++
		}
	}
	if failed != n {
		t.Errorf("%d of %d were granted, where a statement for many took the last token", n-failed, n)
	}
	exec(t, conn, "alter sequence holdfast.token no maxvalue")
	for _, r := range requests {
		r.Try = true
		free(t, take(t, c[1], r))
	}
	free(t, flag)
	if !l.alive() {
		t.Error("the connection has ended")
	}
}
