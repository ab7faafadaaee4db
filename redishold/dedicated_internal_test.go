package redishold

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// aSpace is a driver as a URL makes it, and its dedicated connection.
func aSpace(t *testing.T, raw string) (*client, *dedicatedConn) {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	d, err := openURL(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	c := d.(*client)
	return c, c.rc.(byRueidis).dedicated
}

func addOne(t *testing.T, c *client) {
	t.Helper()
	if _, err := c.Count(t.Context(), &driver.CountRequest{Name: "n", Op: driver.CountAdd, A: 1, Once: true}); err != nil {
		t.Fatal(err)
	}
}

// alone reports that the last call was answered on the dedicated connection.
func (l *dedicatedConn) alone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.answered.IsZero() && l.answered.Equal(l.last)
}

// TestLoneCaller: calls that come one at a time get a connection of their own,
// and one that comes beside another does not wait for it. After a pause the next
// does not rely on it.
func TestLoneCaller(t *testing.T) {
	c, l := aSpace(t, services.Redis(t).URL())
	addOne(t, c)
	if l.client != nil {
		t.Error("the first call has a connection of its own")
	}
	for deadline := time.Now().Add(20 * time.Second); !l.alone(); {
		if addOne(t, c); time.Now().After(deadline) {
			t.Fatal("no call goes by the lone connection")
		}
	}
	l.mu.Lock()
	addOne(t, c)
	was := l.answered
	l.mu.Unlock()
	l.calls.Add(1)
	addOne(t, c)
	l.calls.Add(-1)
	if l.mu.Lock(); !l.answered.Equal(was) {
		t.Error("a call beside another went by the lone connection")
	}
	was = was.Add(-closeBy)
	l.answered = was
	l.mu.Unlock()
	addOne(t, c)
	if l.mu.Lock(); l.answered.Equal(l.last) {
		t.Error("a call went by a connection that may have broken")
	}
	l.mu.Unlock()
}

// TestLoneCallerGivesUp: a call on the dedicated connection ends with its context, and
// the connection with it; the next time it is another one.
func TestLoneCallerGivesUp(t *testing.T) {
	server := services.Redis(t)
	link := services.Proxy(t, server.Addr())
	c, l := aSpace(t, link.URL(server.URL())+"?write_timeout=1h")
	look, _ := aSpace(t, server.URL())
	counted := func() string { return look.rc.do(t.Context(), []string{"GET", "n"})[0].reply[0] }
	l.wake()
	link.Delay(time.Hour, services.ToClient)
	defer link.Heal()
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	l.mu.Lock()
	go l.do(ctx, func(ctx context.Context, rc rueidis.Client) error {
		err := rc.Do(ctx, rc.B().Incr().Key("n").Build()).Error()
		answered <- err
		return err
	})
	for deadline := time.Now().Add(20 * time.Second); counted() != "1"; {
		if time.Now().After(deadline) {
			t.Fatal("the server did not count")
		}
	}
	cancel()
	select {
	case err := <-answered:
		if err == nil {
			t.Error("a call that was given up was answered")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the call does not end with its context")
	}
	if l.alone() {
		t.Error("the connection is used on after a call was given up")
	}
	link.Heal()
	l.wake()
	if l.mu.Lock(); l.answered.IsZero() {
		t.Error("the connection does not come back")
	}
	l.mu.Unlock()
	addOne(t, c)
}

// TestNoLoneConnection: where a failover or a cluster moves the server, and for a
// client of the caller's, there is none.
func TestNoLoneConnection(t *testing.T) {
	one := rueidis.ClientOption{InitAddress: []string{"a:1"}}
	behind := one
	behind.Sentinel.MasterSet = "main"
	for what, l := range map[string]*dedicatedConn{
		"cluster":  newDedicatedConn(one, rueidis.ClientModeCluster),
		"Sentinel": newDedicatedConn(behind, rueidis.ClientModeStandalone),
		"several":  newDedicatedConn(rueidis.ClientOption{InitAddress: []string{"a:1", "b:1"}}, rueidis.ClientModeStandalone),
	} {
		if l != nil {
			t.Errorf("%s: there is one", what)
		}
	}
	if newDedicatedConn(one, rueidis.ClientModeStandalone) == nil {
		t.Error("one server: there is none")
	}
}
