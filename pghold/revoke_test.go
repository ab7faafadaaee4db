package pghold_test

import (
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// abandoned ends a connection for the client alone: the server does not notice until the proxy is closed.
var abandoned = mishap{name: "abandoned", first: true, later: true, strike: func(c *tripConn, _ []byte, _ bool) bool {
	_ = c.client.Close()
	<-c.p.over
	return false
}}

// TestRevokeOverABrokenConnection: a Revoke that says nothing has freed the names of its session; one with a
// connection that broke off under it says that this is not known.
func TestRevokeOverABrokenConnection(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	other, look := open(t, url), connect(t, url)
	check(t, released(other.Mutex("schema").Acquire(t.Context())))
	unknown := 0
	for k, struck := 1, true; struck; k++ {
		p := newTripProxy(t, pg, 0, mishap{})
		s := open(t, p.URL(url))
		session := must(s.Session(t.Context()))(t)
		m, sem := s.Mutex("m", holdfast.Under(session)), s.Semaphore("s", 1, holdfast.Under(session))
		must(m.Acquire(t.Context()))(t)
		must(sem.Acquire(t.Context(), 1))(t)
		eventually(t, "the hold has no row", func() (has bool) {
			scan(t, look, &has, "select exists (select from holdfast.claim where name = 'm' and token > 0)")
			return has
		})
		p.arm(k, abandoned)
		err := session.Revoke()
		struck = p.disarm()
		if err == nil {
			check(t, released(other.Mutex("m").TryAcquire(t.Context())))
			check(t, released(other.Semaphore("s", 1).TryAcquire(t.Context(), 1)))
		} else if unknown++; !errors.Is(err, holdfast.ErrUnavailable) || holdfast.NotDone(err) || errors.Is(err, holdfast.ErrLost) {
			t.Errorf("cut at trip %d: %v", k, err)
		}
		_ = s.Close()
		p.close()
		check(t, released(other.Mutex("m").Acquire(t.Context())))
		check(t, released(other.Semaphore("s", 1).Acquire(t.Context(), 1)))
	}
	if unknown == 0 {
		t.Error("no connection broke off under a hold")
	}
}
