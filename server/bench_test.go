//go:build unix

package server_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/server"
	"github.com/holdfast-io/holdfast/server/replica"
	"github.com/holdfast-io/holdfast/server/storage"
)

func median[T ~int64 | ~float64](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}

func benchServer(b *testing.B, cfg server.Config) *server.Server {
	b.Helper()
	srv, err := server.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { srv.Close() })
	return srv
}

func spaceOf(b *testing.B, srv *server.Server) *holdfast.Space {
	b.Helper()
	s, err := srv.Space()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// BenchmarkProposer is one caller that counts through the API, between appends to
// a bare file that is filled already, each with one fdatasync.
func BenchmarkProposer(b *testing.B) {
	dir := b.TempDir()
	c := spaceOf(b, benchServer(b, server.Config{Dir: filepath.Join(dir, "node")})).Counter("n")
	f, err := storage.OS{}.Create(filepath.Join(dir, "bare"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	const size, block = 16 << 20, 512
	if _, err := f.WriteAt(make([]byte, size), 0); err != nil {
		b.Fatal(err)
	}
	var node, bare []time.Duration
	data, off := make([]byte, block), int64(0)
	for b.Loop() {
		begin := time.Now()
		if _, err := c.Add(b.Context(), 1); err != nil {
			b.Fatal(err)
		}
		between := time.Now()
		if _, err := f.WriteAt(data, off); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		node, bare = append(node, between.Sub(begin)), append(bare, time.Since(between))
		off = (off + block) % size
	}
	b.ReportMetric(float64(median(node))/float64(median(bare)), "p50/append")
	b.ReportMetric(float64(median(node))/1e3, "p50-µs")
}

// proposers is how many callers there are at a time.
const proposers = 1024

// burst lets all proposers work for a while and returns commands a second, and
// the processor time of one in seconds.
func burst(work func(i int) (commands int)) (speed, cost float64) {
	var (
		all  sync.WaitGroup
		stop atomic.Bool
		n    atomic.Int64
	)
	begin, used := time.Now(), processorTime()
	for i := range proposers {
		all.Go(func() {
			for !stop.Load() {
				n.Add(int64(work(i)))
			}
		})
	}
	time.Sleep(500 * time.Millisecond) // the length of a burst
	stop.Store(true)
	all.Wait()
	commands := float64(n.Load())
	return commands / time.Since(begin).Seconds(), (processorTime() - used).Seconds() / commands
}

// processorTime is what this process has used of it.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// locks is the work of taking a lock and giving it back, one name a proposer.
func locks(b *testing.B, s *holdfast.Space) func(i int) int {
	names := make([]*holdfast.Mutex, proposers)
	for i := range names {
		names[i] = s.Mutex(fmt.Sprintf("bench/some-lock-%08d", i))
	}
	return func(i int) int {
		h, err := names[i].Acquire(context.Background())
		if err == nil {
			err = h.Release()
		}
		if err != nil {
			b.Error(err)
		}
		return 2
	}
}

// entries is the work of the bare loop: a command of 64 bytes, as a lock takes.
func entries(n *bare) func(i int) int {
	done := make([]chan struct{}, proposers)
	for i := range done {
		done[i] = make(chan struct{}, 1)
	}
	data := make([]byte, 64)
	return func(i int) int {
		n.propose(data, done[i])
		return 1
	}
}

// against runs bursts of both in turn; the ratio is of commands a second, and of
// processor time a command, which says more on a busy machine.
func against(b *testing.B, unit string, node, bare func(i int) int) {
	burst(node) // both warm up
	burst(bare)
	var speeds, rates, costs []float64
	for b.Loop() {
		fast, cheap := burst(bare)
		slow, dear := burst(node)
		speeds, rates, costs = append(speeds, slow), append(rates, fast/slow), append(costs, dear/cheap)
	}
	b.ReportMetric(median(rates), "bare/"+unit)
	b.ReportMetric(median(costs), unit+"-cpu/bare")
	b.ReportMetric(median(speeds), "commands/s")
}

// BenchmarkProposers is 1,024 sessions that lock and unlock on a node alone,
// beside a bare raft loop with as many callers.
func BenchmarkProposers(b *testing.B) {
	w := newWire(benchServer(b, server.Config{Dir: b.TempDir()}), proposers)
	against(b, "node", w.work, entries(newBare(b, 1, nil, nil)))
}

// BenchmarkCallers is 1,024 callers of the API that do so in one Space.
func BenchmarkCallers(b *testing.B) {
	s := spaceOf(b, benchServer(b, server.Config{Dir: b.TempDir()}))
	against(b, "space", locks(b, s), entries(newBare(b, 1, nil, nil)))
}

// BenchmarkThree is the same on three nodes, all in this process, over sockets.
func BenchmarkThree(b *testing.B) {
	w := newWire(three(b), proposers)
	lns, addrs := make([]net.Listener, 3), map[uint64]string{}
	for i := range lns {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		lns[i], addrs[uint64(i+1)] = ln, ln.Addr().String()
	}
	var lead *bare
	for i := range lns {
		n := newBare(b, uint64(3-i), lns[2-i], addrs)
		lead = n
	}
	against(b, "three", w.work, entries(lead))
}

// three starts a group and returns its leader.
func three(b *testing.B) *server.Server {
	b.Helper()
	var founders []replica.Endpoint
	for i := range 3 {
		founders = append(founders, replica.Endpoint{ID: uint64(i + 1), Peer: freeAddr(b)})
	}
	var all []*server.Server
	for i := range founders {
		srv, err := server.New(server.Config{Dir: b.TempDir(), ID: uint64(i + 1), Founders: founders, Listen: founders[i].Peer})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { srv.Close() })
		all = append(all, srv)
	}
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		for _, srv := range all {
			if st, err := srv.Status(ctx); err == nil && st.Serving {
				return srv
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.Fatal("no leader")
	return nil
}
