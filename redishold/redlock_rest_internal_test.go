package redishold

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast/driver"
)

// TestRedLockReleaseIsSeen: a release reaches the servers that answer soon before it
// returns, not only a majority; one that is far away keeps nobody.
func TestRedLockReleaseIsSeen(t *testing.T) {
	for late, heard := range map[time.Duration]int32{5 * time.Millisecond: 1, time.Second: 0} {
		synctest.Test(t, func(t *testing.T) {
			servers := []*farServer{{}, {}, {late: late}}
			r := aRedLock(t, servers)
			session := driver.NewSession(driver.SessionID{}, driver.Spec{TTL: 30 * time.Second})
			if v := r.freeAll(t.Context(), &lock{name: "m", id: "1", session: session}); !v.passed() {
				t.Errorf("%d of three servers have heard of it", v.yes)
			}
			if n := servers[2].heard.Load(); n != heard {
				t.Errorf("a release returned when a server that is %s away had heard of %d releases, not %d", late, n, heard)
			}
			r.work.Wait()
		})
	}
}

// aRedLock is one on servers that can be reached at once.
func aRedLock(t *testing.T, servers []*farServer) *redlock {
	t.Helper()
	opts, err := (*Options)(nil).settled()
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*node
	for _, s := range servers {
		s.near = make(chan struct{})
		close(s.near)
		s.dials.Add(1) // the first one stands
		rc, err := rueidis.NewClient(s.options())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(rc.Close)
		nodes = append(nodes, &node{rc: rc, admitted: true})
	}
	r := newRedLock(nodes, opts)
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}
