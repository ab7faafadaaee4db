package servers

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast"
)

const (
	idleSessions = "idle sessions"
	streams      = 100
	allSessions  = 100_000
	sessionTTL   = 30 * time.Second // the default; a session is renewed every third of it
	leastTTL     = 3 * time.Second
)

// idle measures what sessions that do nothing but live cost a server of their
// own.
func idle(t *testing.T, program string, scale float64) []limit {
	scale = min(scale, 1)
	n := max(int(allSessions*scale), streams)
	ttl := max(time.Duration(float64(sessionTTL)*scale), leastTTL)
	o := startOurs(t, program, 1)
	heap, rss := o.heap(t), resident(t, o.nodes[0].Pid())
	sessions := o.sessions(t, n, ttl)
	time.Sleep(ttl) // what opening them left behind is over
	before, _ := o.meter()()
	began := time.Now()
	time.Sleep(2 * ttl / 3)
	after, _ := o.meter()()
	took := time.Since(began)
	for i, s := range sessions {
		if err := s.Err(); err != nil {
			t.Errorf("session %d of %d: %v", i, n, err)
		}
	}
	heap, rss = o.heap(t)-heap, resident(t, o.nodes[0].Pid())-rss
	what := fmt.Sprintf("%d %s on %d streams, TTL %v: ", n, idleSessions, streams, ttl)
	return []limit{
		{what + "live bytes of server memory each, streams included", 600, heap / float64(n)},
		{what + "bytes each as the system counts them (RSS), with what awaits collection", 0, rss / float64(n)},
		{what + "server's processor time to keep them alive, in cores", 0.5, (after - before).Seconds() / took.Seconds()},
	}
}

func (o *ours) sessions(t *testing.T, n int, ttl time.Duration) []*holdfast.Session {
	all := make([]*holdfast.Session, n)
	var g errgroup.Group
	for i, s := range o.spaces(t, streams) {
		g.Go(func() (err error) {
			for j := i; j < n && err == nil; j += streams {
				all[j], err = s.Session(t.Context(), holdfast.TTL(ttl))
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return all
}

var memory = regexp.MustCompile(`(?m)^# (HeapAlloc|Stack) = (\d+)`)

// heap is what the first node has alive: objects after a collection, and stacks.
func (o *ours) heap(t *testing.T) float64 {
	r, err := http.Get("http://" + o.admin + "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := memory.FindAllSubmatch(text, -1)
	if len(found) != 2 {
		t.Fatalf("the profile of the heap tells %q", found)
	}
	var sum float64
	for _, f := range found {
		n, _ := strconv.ParseFloat(string(f[2]), 64)
		sum += n
	}
	return sum
}
