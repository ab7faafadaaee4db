package redishold

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// absentServer refuses every connection at once.
type absentServer struct {
	rueidis.Client // makes commands

	mu    sync.Mutex
	sizes []int // of the pipelines that it was sent
}

func (s *absentServer) DoMulti(_ context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sizes = append(s.sizes, len(commands))
	all := make([]rueidis.RedisResult, len(commands))
	for i := range all {
		all[i] = rueidis.NewErrorResult(errors.New("connection refused"))
	}
	return all
}

// TestDebtsOfAnAbsentServer: a server that is away costs little however much it is owed, and
// what has ended there by itself is forgotten, whatever stands before it.
func TestDebtsOfAnAbsentServer(t *testing.T) {
	c, _ := aSpace(t, services.Redis(t).URL())
	server := &absentServer{Client: c.rc.(byRueidis).Client}
	synctest.Test(t, func(t *testing.T) {
		opts, err := (*Options)(nil).settled()
		if err != nil {
			t.Fatal(err)
		}
		n := &node{rc: server, admitted: true}
		r := &redlock{nodes: []*node{n}, opts: opts}
		r.life, r.kill = context.WithCancel(t.Context())
		owe := func(i int, ttl time.Duration) {
			r.owe(0, &lock{name: "m", id: strconv.Itoa(i), session: driver.NewSession(driver.SessionID{}, driver.Spec{TTL: ttl})})
		}
		owe(0, 24*time.Hour)
		for i := range 3000 {
			owe(i+1, 10*time.Second)
		}
		time.Sleep(25 * time.Second)
		r.kill()
		r.work.Wait()
		if tries := len(server.sizes); tries < 10 || tries > 40 {
			t.Errorf("it was tried %d times in 25 s", tries)
		}
		for _, size := range server.sizes {
			if size > maxTold {
				t.Fatalf("it was told %d debts at once", size)
			}
		}
		if left := n.debts.due(); left != 1 {
			t.Errorf("%d debts are left; want that of a day alone", left)
		}
	})
}
