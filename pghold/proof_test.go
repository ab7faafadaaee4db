package pghold_test

import (
	"context"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/pghold"
)

var trials = flag.Int("pghold.trials", quick, "how often each fault of TestProof is tried")

// fault is one way for a holder to lose its lock.
type fault struct {
	name string
	// aim prepares what makes it happen; mend ends it, so that the next can be
	// granted.
	aim  func(t *testing.T, p *proof) (strike func())
	mend func(p *proof)
	// limit is the latest moment at which the holder may learn of it.
	limit time.Duration
	// slow: it takes a while until it is done, and until then the holder may be
	// answered. Stopping every process of a server is so.
	slow bool
}

// proof is a server with a holder behind a link that can be cut and another
// program that waits.
type proof struct {
	pg    *services.PostgreSQLServer
	url   string
	way   *services.Link
	opts  *pghold.Options
	other *holdfast.Space
	look  *pgx.Conn
}

// The holder asks for a sign of life every 50 ms and gives up after 400 ms.
const (
	proofKeepalive = 50 * time.Millisecond
	proofTimeout   = 400 * time.Millisecond
	// slack is what a busy machine may add.
	slack = time.Second
	// quick is the number of trials from which on times are held against what
	// is promised: fewer are a test among others, on a machine that may be busy.
	quick = 5
)

// TestProof measures what the table in the package's documentation says: how
// late a holder learns of its loss, and how often and how long it believed in
// its hold while another had been granted. That happens only after its server
// process was killed; the next token is greater in any case.
func TestProof(t *testing.T) {
	pg := services.PostgreSQL(t)
	p := &proof{
		pg: pg, url: pg.URL(pg.CreateDatabase(t)), way: services.Proxy(t, pg.Addr()),
		opts: &pghold.Options{Keepalive: proofKeepalive, Timeout: proofTimeout},
	}
	p.other = openPool(t, p.url, nil)
	p.look = connect(t, p.url)
	check(t, p.other.Ping(t.Context()))
	for _, f := range []fault{
		{"backend killed", killBackend, func(*proof) {}, 50 * time.Millisecond, false},
		{"link cut", func(_ *testing.T, p *proof) func() { return func() { p.way.Cut() } }, func(p *proof) { p.way.Heal() }, proofKeepalive + proofTimeout, false},
		{"server stopped", func(_ *testing.T, p *proof) func() { return p.pg.Stop }, func(p *proof) { p.pg.Cont() }, proofKeepalive + proofTimeout, true},
	} {
		t.Run(f.name, func(t *testing.T) { p.run(t, f) })
	}
}

// killBackend kills the process that holds for the holder.
func killBackend(t *testing.T, p *proof) func() {
	pid := holderOf(t, p.look, "m")
	return func() {
		var killed bool
		scan(t, p.look, &killed, "select pg_terminate_backend($1)", pid)
	}
}

// trial is what one loss showed. Times are since the fault, and below zero if a
// slow one was noticed before it was done.
type trial struct{ noticed, granted time.Duration }

func (p *proof) run(t *testing.T, f fault) {
	var notice, overlap []time.Duration
	early := 0
	for range *trials {
		var tr trial
		eventually(t, "every hold ends before the fault", func() (struck bool) {
			if tr, struck = p.try(t, f); !struck {
				early++
			}
			return struck
		})
		notice = append(notice, tr.noticed)
		if tr.granted < tr.noticed {
			overlap = append(overlap, tr.noticed-tr.granted)
		}
	}
	t.Logf("proof: pghold %s: %d trials, %d overlaps (longest %s), %d early, noticed p50 %s p99 %s max %s",
		f.name, len(notice), len(overlap), rank(overlap, 100), early, rank(notice, 50), rank(notice, 99), rank(notice, 100))
	if f.name != "backend killed" && len(overlap) > 0 {
		t.Errorf("%d of %d times another was granted before the holder knew", len(overlap), len(notice))
	}
	if *trials <= quick {
		return
	}
	if rank(notice, 100) > f.limit+slack {
		t.Errorf("a loss was noticed after %s; promised are %s", rank(notice, 100), f.limit)
	}
	if rank(overlap, 100) > f.limit+slack {
		t.Errorf("a holder believed for %s in a hold that another had", rank(overlap, 100))
	}
}

// try lets one holder lose; false: it had lost before, since the machine was too
// busy for its short timeout.
func (p *proof) try(t *testing.T, f fault) (tr trial, struck bool) {
	holder, end := p.open(t)
	defer end()
	var h *holdfast.Hold
	eventually(t, "the holder does not get the lock", func() (ok bool) { // a busy machine may exceed the short timeout
		var err error
		h, err = holder.Mutex("m").Acquire(t.Context())
		return err == nil
	})
	lost := make(chan time.Time, 1)
	go func() {
		<-h.Done()
		lost <- time.Now()
	}()
	strike := f.aim(t, p) // before another can have the lock
	next := p.next(t)
	eventually(t, "nobody waits", func() bool {
		return len(next) > 0 || len(must(p.other.Inspect(t.Context(), "m"))(t).Waiters) == 1
	})
	if len(lost) > 0 || len(next) > 0 {
		check(t, p.granted(t, next).hold.Release())
		return trial{}, false
	}
	start := time.Now()
	strike()
	if f.slow {
		start = time.Now()
	}
	var noticed time.Time
	select {
	case noticed = <-lost:
	case <-time.After(patience):
		t.Fatal("the loss was not noticed")
	}
	f.mend(p)
	got := p.granted(t, next)
	if got.hold.Token() <= h.Token() {
		t.Errorf("the next token is %d after %d", got.hold.Token(), h.Token())
	}
	check(t, got.hold.Release())
	return trial{noticed: noticed.Sub(start), granted: got.at.Sub(start)}, true
}

// granted waits for the grant of the program that waited.
func (p *proof) granted(t *testing.T, next <-chan grant) (got grant) {
	t.Helper()
	select {
	case got = <-next:
	case <-time.After(patience):
		t.Fatal("the next was not granted")
	}
	check(t, got.err)
	return got
}

// grant is what the program that waited got, and when.
type grant struct {
	hold *holdfast.Hold
	err  error
	at   time.Time
}

// next waits for the lock as the other program, or has it, if the holder has lost it.
func (p *proof) next(t *testing.T) <-chan grant {
	t.Helper()
	waits, got := make(chan struct{}), make(chan grant, 1)
	go func() {
		h, err := p.other.Mutex("m", holdfast.OnWait(func(int) { close(waits) })).Acquire(context.Background())
		got <- grant{h, err, time.Now()}
	}()
	select {
	case <-waits:
	case g := <-got:
		got <- g
	case <-time.After(patience):
		t.Fatal("the other program does not wait")
	}
	return got
}

// open is a holder behind the link.
func (p *proof) open(t *testing.T) (s *holdfast.Space, end func()) {
	t.Helper()
	pool := must(pgxpool.New(t.Context(), p.way.URL(p.url)))(t)
	s = must(holdfast.New(must(pghold.New(pool, p.opts))(t)))(t)
	return s, func() {
		check(t, s.Close())
		pool.Close()
	}
}

// rank is the p-th percentile.
func rank(list []time.Duration, p int) time.Duration {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[min(len(list)*p/100, len(list)-1)].Round(10 * time.Microsecond)
}
