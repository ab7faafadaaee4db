package api_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/remote"
	"github.com/holdfast-io/holdfast/server"
)

var (
	loadSessions = flag.Int("api.sessions", 300, "client sessions of TestOverload; 10,000 and more are judged by time and memory, too")
	loadFor      = flag.Duration("api.overload", 2*time.Second, "how long TestOverload has three times the load that a node can bear")
)

func init() { roles["serve"] = serveRole }

// serveRole is a node in a process of its own; it says where it serves.
func serveRole() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	node, err := server.New(server.Config{Dir: os.Getenv("API_TEST_DIR")})
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	go func() { // ends with the parent
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	return api.Serve(context.Background(), ln, api.New(node), api.Config{})
}

// resident is the memory of a process, in MiB.
func resident(t *testing.T, pid int) (mib int) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatalf("the node has gone: %v", err)
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	if _, err := fmt.Sscan(rest, &mib); err != nil {
		t.Fatal(err)
	}
	return mib >> 10
}

// openSessions opens sessions that keep themselves, a hundred on a connection.
func openSessions(ctx context.Context, t *testing.T, addr string, n int) (all []*holdfast.Session) {
	t.Helper()
	var mu sync.Mutex
	var work sync.WaitGroup
	for i := 0; i < n; i += 100 {
		s, err := remote.Open(remote.Config{Endpoints: []string{addr}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		for range min(100, n-i) {
			work.Go(func() {
				x, err := s.Session(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, x)
			})
		}
	}
	work.Wait()
	return all
}

// probe is a client that locks and unlocks now and then.
type probe struct {
	mu   sync.Mutex
	took []time.Duration
	// failed counts pairs whose release took longer than a release waits.
	failed atomic.Int64
	end    context.CancelFunc
	ended  sync.WaitGroup
}

func newProbe(ctx context.Context, t *testing.T, addr string) *probe {
	t.Helper()
	s, err := remote.Open(remote.Config{Endpoints: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	p := &probe{}
	ctx, p.end = context.WithCancel(ctx)
	for i := range 4 {
		m := s.Mutex(fmt.Sprintf("probe/%d", i))
		p.ended.Go(func() { p.run(ctx, t, m) })
	}
	t.Cleanup(func() {
		p.stop()
		_ = s.Close()
	})
	return p
}

func (p *probe) stop() {
	p.end()
	p.ended.Wait()
}

func (p *probe) run(ctx context.Context, t *testing.T, m *holdfast.Mutex) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		h, err := m.Acquire(ctx)
		if err == nil {
			err = h.Release()
		}
		if err != nil && ctx.Err() == nil {
			p.failed.Add(1)
		}
		p.mu.Lock()
		p.took = append(p.took, time.Since(began))
		p.mu.Unlock()
		<-tick.C
	}
}

// during runs f and tells the median and the 99th percentile of pairs that ended
// meanwhile.
func (p *probe) during(f func()) (p50, p99 time.Duration) {
	p.mu.Lock()
	p.took = nil
	p.mu.Unlock()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.took)
	if len(p.took) == 0 {
		return 0, 0
	}
	return p.took[len(p.took)/2], p.took[len(p.took)*99/100]
}

// pass lets time pass.
func pass(d time.Duration) func() {
	return func() { <-time.After(d) }
}

// Three times the load that a node can bear neither stops it nor ends a session
// that was there, nor does it fill its memory, and afterwards it is as before.
func TestOverload(t *testing.T) {
	addr, pid := services.Again(t, "API_TEST_ROLE=serve", "API_TEST_DIR="+t.TempDir(), "GOGC=50") // as holdfast serve has it
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sessions := openSessions(ctx, t, addr, *loadSessions)
	floods := []*flood{newFlood(ctx, t, addr, 1, 512), newFlood(ctx, t, addr, 2, 512)}
	full := *loadSessions >= 10_000
	settle := time.Second
	if full {
		settle = 10 * time.Second
	}

	// So long that the log in memory is as long as it gets.
	capacity := together(floods, func(f *flood) int64 { return f.saturate(ctx, t, 2*settle) }) / (2 * settle).Seconds()
	p := newProbe(ctx, t, addr)
	p50, before := p.during(pass(settle))
	memory := resident(t, pid)
	t.Logf("proof: %d sessions: %d MiB, lock and unlock in %s (median), %s (99 %%); the node answers %.0f frames of 8 commands a second of two greedy streams",
		len(sessions), memory, p50, before, capacity)

	most := memory
	var sent float64
	var refused, done int64
	for _, f := range floods {
		done, refused = done-f.done.Load(), refused-f.refused.Load()
	}
	p50, p99 := p.during(func() {
		stop := sampling(func() { most = max(most, resident(t, pid)) })
		sent = together(floods, func(f *flood) int64 { return f.pour(t, 3*capacity/float64(len(floods)), *loadFor) })
		stop()
	})
	for _, f := range floods {
		done, refused = done+f.done.Load(), refused+f.refused.Load()
	}
	t.Logf("proof: %s of %.1f times that: %d frames done and %d refused so far, lock and unlock in %s (median), %s (99 %%); %d MiB at most",
		*loadFor, sent/loadFor.Seconds()/capacity, done, refused, p50, p99, most)
	if full && most > 2*memory {
		t.Errorf("the node took %d MiB, more than twice the %d before", most, memory)
	}

	after := p.during99(settle)
	t.Logf("proof: afterwards the 99th percentile in each fifth of %s was %v", settle, after)
	if best := slices.Min(after); full && best > before*3/2 {
		t.Errorf("10 s after the overload the 99th percentile was %s, before it %s", best, before)
	}
	p.stop()
	for _, f := range floods {
		f.close()
	}
	if lost := lostOf(sessions); lost > 0 {
		t.Errorf("%d of %d sessions are lost", lost, len(sessions))
	}
	if full && refused == 0 {
		t.Error("nothing was refused: it was no overload")
	}
}

func lostOf(sessions []*holdfast.Session) (n int) {
	for _, s := range sessions {
		if s.Err() != nil {
			n++
		}
	}
	return n
}

// during99 is the 99th percentile in each fifth of a time.
func (p *probe) during99(d time.Duration) (list []time.Duration) {
	for range 5 {
		_, p99 := p.during(pass(d / 5))
		list = append(list, p99)
	}
	return list
}

// together runs f on all floods at the same time and adds up.
func together(floods []*flood, f func(*flood) int64) float64 {
	var n atomic.Int64
	var all sync.WaitGroup
	for _, x := range floods {
		all.Go(func() { n.Add(f(x)) })
	}
	all.Wait()
	return float64(n.Load())
}

// sampling runs f ten times a second until it is stopped.
func sampling(f func()) (stop func()) {
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f()
			case <-end:
				return
			}
		}
	})
	return func() {
		close(end)
		done.Wait()
	}
}
