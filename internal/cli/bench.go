package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// workload is something to measure: prepare returns what one client does again
// and again; forget removes what it leaves.
type workload struct {
	name    string
	needs   holdfast.Feature
	prepare func(s *holdfast.Space, client int) func(context.Context) error
	forget  func(ctx context.Context, s *holdfast.Space, clients int) error
}

var workloads = []workload{
	{"lock", driver.FeatureFencing, func(s *holdfast.Space, c int) func(context.Context) error {
		return pair(s.Mutex(fmt.Sprint("lock/", c)))
	}, nil},
	{"contended", driver.FeatureFencing, func(s *holdfast.Space, _ int) func(context.Context) error {
		return pair(s.Mutex("contended"))
	}, nil},
	{"counter", driver.FeatureCounter, func(s *holdfast.Space, _ int) func(context.Context) error {
		return func(ctx context.Context) error { _, err := s.Counter("counter").Add(ctx, 1); return err }
	}, func(ctx context.Context, s *holdfast.Space, _ int) error { return s.Counter("counter").Delete(ctx) }},
	{"seq", driver.FeatureSequence, func(s *holdfast.Space, _ int) func(context.Context) error {
		return func(ctx context.Context) error { _, err := s.Sequence("seq").Next(ctx); return err }
	}, func(ctx context.Context, s *holdfast.Space, _ int) error { return s.Sequence("seq").Delete(ctx) }},
	{"kv", driver.FeatureKV, func(s *holdfast.Space, c int) func(context.Context) error {
		key := fmt.Sprint("kv/", c)
		return func(ctx context.Context) error { _, err := s.KV().Put(ctx, key, []byte("value")); return err }
	}, forgetKeys},
}

// pair is one lock and unlock.
func pair(m *holdfast.Mutex) func(context.Context) error {
	return func(ctx context.Context) error {
		h, err := m.Acquire(ctx)
		if err != nil {
			return err
		}
		return h.Release()
	}
}

func forgetKeys(ctx context.Context, s *holdfast.Space, clients int) error {
	var errs []error
	for c := range clients {
		_, err := s.KV().Delete(ctx, fmt.Sprint("kv/", c))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// benching is what the flags of bench say.
type benching struct {
	a        *app
	names    []string
	clients  int
	duration time.Duration
	ops      int64
}

func (a *app) benchCommand() *cobra.Command {
	b := &benching{a: a}
	c := &cobra.Command{Use: "bench [WORKLOAD…]", Short: "Measure how fast a backend is from here", Args: cobra.ArbitraryArgs,
		Long: `Measure how fast a backend is, from this machine: many clients at a time in one
program, each doing one thing after the other.

  lock       lock and unlock a name of one's own
  contended  lock and unlock the same name as everybody
  counter    add to one counter
  seq        draw a number (most come from a block that was drawn before)
  kv         put a key of one's own

Without a WORKLOAD all that the backend can do are measured. Names begin with
bench/ and are removed afterwards.`,
		Example: "  holdfast bench\n  holdfast bench --clients 64 --duration 10s lock"}
	f := c.Flags()
	f.IntVar(&b.clients, "clients", 8, "how many at a time")
	f.DurationVar(&b.duration, "duration", 2*time.Second, "how long each workload is measured")
	f.Int64Var(&b.ops, "ops", 0, "end each workload after so many operations (default: by time)")
	c.RunE = func(_ *cobra.Command, args []string) error { b.names = args; return untilSignal(b.run) }
	return c
}

func (b *benching) check() error {
	switch {
	case b.clients < 1 || b.clients > 10_000:
		return usagef("1 to 10000 clients", "--clients %d", b.clients)
	case b.duration <= 0:
		return usagef("write a time such as 2s", "--duration %s", b.duration)
	case b.ops < 0:
		return usagef("leave it out to measure by time", "--ops %d is negative", b.ops)
	}
	for _, n := range b.names {
		if names := workloadNames(); !slices.Contains(names, n) {
			return usagef(didYouMean(nearest(n, names), "see holdfast bench --help"), "there is no workload %q", n)
		}
	}
	return nil
}

func workloadNames() (names []string) {
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

func (b *benching) run(ctx context.Context) error {
	if err := b.check(); err != nil {
		return err
	}
	s, err := b.a.openWithin(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	own := s.Sub("bench/" + strings.ToLower(rand.Text()[:8]) + "/")
	var results []measured
	for _, w := range workloads {
		if !b.wants(w, s.Info()) {
			continue
		}
		m, err := b.measure(ctx, own, w)
		if err != nil {
			return err
		}
		results = append(results, m)
	}
	return b.table(results)
}

// wants: one that was named is tried even if the backend cannot do it; it says so.
func (b *benching) wants(w workload, info holdfast.Info) bool {
	return slices.Contains(b.names, w.name) || len(b.names) == 0 && info.Features[w.needs]
}

// measured is what a workload took.
type measured struct {
	Workload string  `json:"workload"`
	Clients  int     `json:"clients"`
	Ops      int     `json:"ops"`
	Seconds  float64 `json:"seconds"`
	Rate     float64 `json:"ops_per_second"`
	P50      float64 `json:"p50_seconds"`
	P99      float64 `json:"p99_seconds"`
	Max      float64 `json:"max_seconds"`
}

func (b *benching) measure(ctx context.Context, s *holdfast.Space, w workload) (measured, error) {
	began := time.Now()
	r := &race{left: b.ops, until: began.Add(b.duration), byOps: b.ops > 0}
	show := b.show(w.name, r, began)
	took, err := r.run(ctx, b.clients, func(c int) func(context.Context) error { return w.prepare(s, c) })
	elapsed := time.Since(began)
	show()
	if w.forget != nil {
		forget, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.a.timeout)
		defer cancel()
		err = errors.Join(err, w.forget(forget, s, b.clients))
	}
	if err != nil || ctx.Err() != nil {
		return measured{}, errors.Join(err, ctx.Err())
	}
	if len(took) == 0 {
		return measured{}, usagef("give it more, such as --duration 2s", "%s: nothing was done in %s", w.name, b.duration)
	}
	slices.Sort(took)
	at := func(part float64) float64 { return took[int(part*float64(len(took)-1))].Seconds() }
	return measured{w.name, b.clients, len(took), elapsed.Seconds(), float64(len(took)) / elapsed.Seconds(), at(0.5), at(0.99), at(1)}, nil
}

// race is many clients that work until the time or the number is used up.
type race struct {
	done  atomic.Int64
	left  int64
	until time.Time
	byOps bool
}

// more says that a client may do one more.
func (r *race) more() bool {
	if r.byOps {
		return r.done.Add(1) <= r.left
	}
	r.done.Add(1)
	return time.Now().Before(r.until)
}

func (r *race) run(ctx context.Context, clients int, prepare func(int) func(context.Context) error) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		took []time.Duration
		fail error
	)
	for c := range clients {
		step := prepare(c)
		all.Go(func() {
			own, err := r.client(ctx, step)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
			if err != nil && fail == nil && !errors.Is(err, context.Canceled) {
				fail = err
				cancel(err)
			}
		})
	}
	all.Wait()
	return took, fail
}

func (r *race) client(ctx context.Context, step func(context.Context) error) ([]time.Duration, error) {
	var took []time.Duration
	for r.more() {
		began := time.Now()
		if err := step(ctx); err != nil {
			return took, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// show draws the bar while a race is on; the function returned ends that.
func (b *benching) show(name string, r *race, began time.Time) func() {
	line := newBar(b.a.errOut)
	stop, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				line.clear()
				return
			case <-tick.C:
				done, passed := r.done.Load(), time.Since(began)
				line.part(b.progress(done, passed), fmt.Sprintf("%-9s %9.0f ops/s", name, float64(done)/passed.Seconds()))
			}
		}
	}()
	return func() { close(stop); <-gone }
}

func (b *benching) progress(done int64, passed time.Duration) float64 {
	if b.ops > 0 {
		return float64(done) / float64(b.ops)
	}
	return passed.Seconds() / b.duration.Seconds()
}

func (b *benching) table(results []measured) error {
	var rows [][]string
	for _, m := range results {
		rows = append(rows, []string{m.Workload, fmt.Sprint(m.Clients), fmt.Sprint(m.Ops), fmt.Sprintf("%.0f", m.Rate), seconds(m.P50), seconds(m.P99), seconds(m.Max)})
	}
	return b.a.print().table(results, []string{"WORKLOAD", "CLIENTS", "OPS", "OPS/S", "P50", "P99", "MAX"}, rows)
}

func seconds(s float64) string { return span(time.Duration(s * float64(time.Second))) }
