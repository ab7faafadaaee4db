package pghold

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// TestWatchKeepsPace: a watch takes events that have come together one after the other, without a rest after each. With
// one, they take so many rests at least in every one of five storms; it is enough if one takes less.
func TestWatchKeepsPace(t *testing.T) {
	const storm = 2000
	c := quickClients(t, 1)[0]
	conn := stranger(t, c)
	for _, err := range c.Watch(t.Context(), &driver.WatchRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		var took time.Duration
		for range 5 {
			release := keepBusy(c.living()) // so that none is read before all were sent
			w := c.hub.add()
			exec(t, conn, "select pg_notify('holdfast_event', i::text) from generate_series(1, $1) i", storm)
			began := time.Now()
			release()
			within(t, "not all is heard", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return len(w.list) == storm
			})
			took = time.Since(began)
			c.hub.remove(w)
			if took < storm*rest {
				return
			}
		}
		t.Fatalf("the last of %d events that had come was heard after %s", storm, took)
	}
}
