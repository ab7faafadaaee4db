package redishold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// aClient is one without a server.
func aClient(t *testing.T, rc engine) *client {
	t.Helper()
	opts, err := (*Options)(nil).settled()
	if err != nil {
		t.Fatal(err)
	}
	return newClient(rc, false, opts)
}

// ask is a request for a mutex with a session of its own.
func ask(i int, l *driver.Session) *driver.Request {
	return &driver.Request{
		ID: [16]byte{byte(i), byte(i >> 8)}, Wants: []driver.Want{{Name: fmt.Sprint("m", i), Kind: driver.Mutex}},
		Session: l, Lost: func(error) {},
	}
}

// laden is a session with many holds.
func laden(t *testing.T, c *client, many int) *driver.Session {
	t.Helper()
	l, err := c.OpenSession(t.Context(), driver.Spec{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for i := range many {
		if _, err := c.Acquire(t.Context(), ask(i, l)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (c *client) listed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.claims)
}

// TestWaiterAtClose: a waiter that sees the end of its session, by Close, before that of the client is told ErrClosed alone,
// as one that sees it after.
func TestWaiterAtClose(t *testing.T) {
	c, _ := aSpace(t, services.Redis(t).URL())
	if _, err := c.Acquire(t.Context(), ask(0, laden(t, c, 0))); err != nil {
		t.Fatal(err)
	}
	l, queued, over := laden(t, c, 0), make(chan struct{}), make(chan error)
	r := ask(0, l)
	r.ID, r.Waiting = [16]byte{1}, func(int) { close(queued) }
	go func() {
		_, err := c.Acquire(t.Context(), r)
		over <- err
	}()
	<-queued
	l.End(driver.ErrClosed)
	if err := <-over; !errors.Is(err, driver.ErrClosed) || errors.Is(err, driver.ErrLost) {
		t.Errorf("%v", err)
	}
}

// TestEndedSessionIsForgotten: nothing is left in a client of the holds of a session that
// was ended, though nobody gives them back.
func TestEndedSessionIsForgotten(t *testing.T) {
	c, _ := aSpace(t, services.Redis(t).URL())
	l := laden(t, c, 3)
	if n := c.listed(); n != 3 {
		t.Fatalf("%d claims are listed; want 3", n)
	}
	if err := c.EndSession(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if n := c.listed(); n != 0 {
		t.Errorf("%d claims of a session that was ended are left", n)
	}
}

// TestExpiredSessionIsForgotten: so it is of one that ran out, as soon as it has; what is
// asked for under it afterwards is not listed.
func TestExpiredSessionIsForgotten(t *testing.T) {
	for _, manual := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := aClient(t, byCaller{})
			u := c.newUser(driver.Spec{TTL: time.Second, Manual: manual})
			u.session.Extend(driver.Now(), time.Second)
			c.add(u)
			c.enlist(&keyClaim{c: c, u: u, id: "1"}, false)
			_, wait, _ := c.dueUsers()
			if wait > time.Second {
				t.Errorf("manual %t: the next look at a session of 1 s is in %s", manual, wait)
			}
			time.Sleep(time.Second + time.Millisecond)
			c.dueUsers()
			c.enlist(&keyClaim{c: c, u: u, id: "2"}, false)
			if n := c.listed(); n != 0 || len(u.claims) != 0 {
				t.Errorf("manual %t: %d claims of a session that ran out are left", manual, n)
			}
		})
	}
}

// meddler is a server of which others clear away what a session has left, as soon as
// it has ended.
type meddler struct {
	engine
	t *testing.T
}

func (m meddler) run(ctx context.Context, s *script, keys, args []string) ([]string, error) {
	reply, err := m.engine.run(ctx, s, keys, args)
	for left := s == endScript; left; {
		swept, err := m.engine.run(ctx, sweepScript, keys, []string{"", "", "0"})
		if err != nil {
			m.t.Fatal(err)
		}
		left = swept[3] == "1"
	}
	return reply, err
}

// TestOthersClearAway: the end of a session with more than one run can clear away is no
// loss when others clear away the rest.
func TestOthersClearAway(t *testing.T) {
	c, _ := aSpace(t, services.Redis(t).URL())
	c.rc = meddler{c.rc, t}
	l := laden(t, c, 300)
	if err := c.EndSession(t.Context(), l); err != nil {
		t.Errorf("EndSession: %v", err)
	}
}

// refusedWith is an answer of a server.
type refusedWith string

func (e refusedWith) Error() string { return string(e) }
func (refusedWith) RedisError()     {}

// TestUntouched: what the server is certain not to have done is told from the rest.
func TestUntouched(t *testing.T) {
	for text, want := range map[string]bool{
		"OOM command not allowed when used memory > 'maxmemory'. script: 12ab, on @user_script:3.":     true,
		"READONLY You can't write against a read only replica. script: 12ab, on @user_script:3.":       true,
		"BUSY Redis is busy running a script.":                                                         true,
		"NOPERM this user has no permissions to run the 'evalsha' command":                             true,
		"NOPERM ACL failure in script: no permissions for a channel script: 12ab, on @user_script:71.": false,
		"ERR something that nobody has heard of":                                                       false,
	} {
		if got := untouched(refusedWith(text)); got != want {
			t.Errorf("%s: %s", text, strconv.FormatBool(got))
		}
	}
	if untouched(context.DeadlineExceeded) {
		t.Error("no answer counts as a refusal")
	}
}

// slowServer renews sessions, one after the other.
type slowServer struct {
	engine
	each time.Duration
	late int // pipelines that it could not answer in time
}

func (s *slowServer) runAll(ctx context.Context, _ *script, tasks []task) []answer {
	all := make([]answer, len(tasks))
	select {
	case <-time.After(s.each * time.Duration(len(tasks))):
		for i := range all {
			all[i].reply = []string{"ok", "1", "0"}
		}
	case <-ctx.Done():
		if ctx.Err() == context.DeadlineExceeded {
			s.late++
		}
		for i := range all {
			all[i].err = ctx.Err()
		}
	}
	return all
}

// TestManySessionsAreRenewed: sessions that are all due at once are renewed in time, though
// a server needs longer for all of them than it may for one.
func TestManySessionsAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{engine: byCaller{}, each: 175 * time.Microsecond}
		c := aClient(t, server)
		var all []*user
		for range 600 {
			u := c.newUser(driver.Spec{TTL: time.Second})
			u.session.Extend(driver.Now(), time.Second)
			c.add(u)
			u.next = driver.Now().Add(300 * time.Millisecond)
			all = append(all, u)
		}
		c.spawn(c.keep)
		time.Sleep(3 * time.Second)
		lost := 0
		for _, u := range all {
			if u.session.Err() != nil {
				lost++
			}
		}
		c.kill()
		c.work.Wait()
		if lost > 0 || server.late > 0 {
			t.Errorf("%d pipelines were not answered in time, and %d of %d sessions lost", server.late, lost, len(all))
		}
	})
}

// TestUrgent: sessions are renewed in the order of their deadlines, and no more at once
// than a server answers in time.
func TestUrgent(t *testing.T) {
	now, c := time.Now(), aClient(t, byCaller{})
	due := func(ttl, left time.Duration) *user {
		u := c.newUser(driver.Spec{TTL: ttl})
		u.until = now.Add(left)
		return u
	}
	late, soon, short := due(30*time.Second, 20*time.Second), due(30*time.Second, time.Second), due(time.Second, 10*time.Second)
	if got := urgent([]*user{late, short, soon}); !slices.Equal(got, []*user{soon, short, late}) {
		t.Error("not in the order of their deadlines")
	}
	many := make([]*user, 2*maxRenewed)
	for i := range many {
		many[i] = due(time.Second, time.Second)
	}
	if n := len(urgent(many)); n != maxRenewed {
		t.Errorf("%d sessions at once; want %d", n, maxRenewed)
	}
}
