package remote_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/remote"
)

// other is a server in another process.
type other struct {
	pid         int
	addr, admin string
}

func startOther(b *testing.B) *other {
	b.Helper()
	line, pid := services.Again(b, serveEnv+"="+b.TempDir())
	addr, admin, _ := strings.Cut(line, " ")
	return &other{pid: pid, addr: addr, admin: admin}
}

func (o *other) space(b *testing.B) *holdfast.Space {
	b.Helper()
	s, err := remote.Open(remote.Config{Endpoints: []string{o.addr}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	if err := s.Ping(b.Context()); err != nil {
		b.Fatal(err)
	}
	return s
}

// spent is the processor time of this program and of the server.
func (o *other) spent(b *testing.B) (own, server time.Duration) {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), time.Duration(o.stat(b, 11)+o.stat(b, 12)) * 10 * time.Millisecond
}

// stat is a number of /proc/pid/stat, counted from the state on.
func (o *other) stat(b *testing.B, field int) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", o.pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	n, err := strconv.ParseInt(strings.Fields(rest)[field], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// measure runs f b.N times, see run.
func (o *other) measure(b *testing.B, callers int, f func(ctx context.Context, caller int) error) {
	b.Helper()
	o.run(b, b.N, callers, f)
}

// run runs f so many times by so many callers at a time and reports the processor
// time for each: it tells more than the rate on a machine that has more to do.
func (o *other) run(b *testing.B, times, callers int, f func(ctx context.Context, caller int) error) {
	b.Helper()
	own, server := o.spent(b)
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for c := range callers {
		all.Go(func() {
			for next.Add(1) <= int64(times) {
				if err := f(b.Context(), c); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	own2, server2 := o.spent(b)
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(times) }
	b.ReportMetric(each(own2-own), "own-µs/op")
	b.ReportMetric(each(server2-server), "server-µs/op")
	b.ReportMetric(float64(times)/b.Elapsed().Seconds(), "ops/s")
}

// pair locks and unlocks.
func pair(ctx context.Context, m *holdfast.Mutex) error {
	h, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	return h.Release()
}

// BenchmarkPairs locks and unlocks names of one's own.
func BenchmarkPairs(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(strconv.Itoa(callers), func(b *testing.B) {
			o := startOther(b)
			s := o.space(b)
			locks := make([]*holdfast.Mutex, callers)
			for i := range locks {
				locks[i] = s.Mutex(fmt.Sprint("lock/", i))
			}
			o.measure(b, callers, func(ctx context.Context, c int) error { return pair(ctx, locks[c]) })
		})
	}
}

// BenchmarkPairsOfSpaces is BenchmarkPairs with a connection for each caller.
func BenchmarkPairsOfSpaces(b *testing.B) {
	const callers = 64
	o := startOther(b)
	locks := make([]*holdfast.Mutex, callers)
	for i := range locks {
		locks[i] = o.space(b).Mutex(fmt.Sprint("lock/", i))
	}
	o.measure(b, callers, func(ctx context.Context, c int) error { return pair(ctx, locks[c]) })
}

// BenchmarkHandOver is the same lock for all.
func BenchmarkHandOver(b *testing.B) {
	for _, callers := range []int{8, 64} {
		b.Run(strconv.Itoa(callers), func(b *testing.B) {
			o := startOther(b)
			m := o.space(b).Mutex("one")
			o.measure(b, callers, func(ctx context.Context, _ int) error { return pair(ctx, m) })
		})
	}
}

// BenchmarkHotCounter adds to one counter.
func BenchmarkHotCounter(b *testing.B) {
	o := startOther(b)
	c := o.space(b).Counter("one")
	o.measure(b, 64, func(ctx context.Context, _ int) error { _, err := c.Add(ctx, 1); return err })
}

// BenchmarkWatchers is one key, put again and again, and 1,000 watchers of it; of
// b.N events each sees its part.
func BenchmarkWatchers(b *testing.B) {
	const watchers = 1000
	o := startOther(b)
	s := o.space(b)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var seen atomic.Int64
	var ready, all sync.WaitGroup
	ready.Add(watchers)
	for range watchers {
		all.Go(func() {
			for ev := range s.Watch(ctx, "k", 0) {
				if ev.Verb == "ready" {
					ready.Done()
					continue
				}
				seen.Add(1)
			}
		})
	}
	ready.Wait()
	o.run(b, max(1, b.N/watchers), 1, func(ctx context.Context, _ int) error { _, err := s.KV().Put(ctx, "k", []byte("v")); return err })
	cancel()
	all.Wait()
	b.ReportMetric(float64(seen.Load())/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkIdleSessions opens sessions on 100 streams and tells what each costs the
// server that keeps them alive. Run it with -benchtime=100000x.
func BenchmarkIdleSessions(b *testing.B) {
	o := startOther(b)
	spaces := make([]*holdfast.Space, 100)
	for i := range spaces {
		spaces[i] = o.space(b)
	}
	before := o.heap(b)
	var mu sync.Mutex
	sessions := make([]*holdfast.Session, 0, b.N)
	o.measure(b, 200, func(ctx context.Context, c int) error {
		x, err := spaces[c%len(spaces)].Session(ctx, holdfast.TTL(30*time.Second))
		mu.Lock()
		defer mu.Unlock()
		sessions = append(sessions, x)
		return err
	})
	b.ReportMetric(float64(o.heap(b)-before)/float64(b.N), "server-B/session")
	_, server := o.spent(b)
	const span = 20 * time.Second
	<-time.After(span)
	_, server2 := o.spent(b)
	b.ReportMetric(100*float64(server2-server)/float64(span), "server-%core")
	for _, x := range sessions {
		if x.Err() != nil {
			b.Fatal(x.Err())
		}
	}
}

// heap is what the server has allocated and needs.
func (o *other) heap(b *testing.B) int64 {
	b.Helper()
	_, rest, _ := strings.Cut(o.get(b, "/debug/pprof/heap?gc=1&debug=1"), "\n# HeapAlloc = ")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func (o *other) get(b *testing.B, path string) string {
	b.Helper()
	res, err := http.Get("http://" + o.admin + path)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}
