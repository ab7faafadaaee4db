package pghold_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/kthtrip"
	"github.com/holdfast-io/holdfast/internal/services"
)

var kthBudget = flag.Duration("pghold.kth", 10*time.Second, "how long operations are disturbed at their k-th round trip; 0: until all have been")

// TestKthTrip: whatever happens to a round trip to the server, promises are kept.
func TestKthTrip(t *testing.T) { kthtrip.Run(t, kthEngine(t), *kthBudget) }

// TestGivenUpInSilence: so is what a request says that is given up when nothing is heard of the server any more.
func TestGivenUpInSilence(t *testing.T) { kthtrip.GivenUp(t, kthEngine(t)) }

// TestGivenUpInSilence_InTransactions: so it is where each lock is that of a transaction.
func TestGivenUpInSilence_InTransactions(t *testing.T) {
	e := kthEngine(t)
	e.URL += "&holdfast_scope=transaction"
	proxy := e.Proxy
	e.Proxy = func(t testing.TB) kthtrip.Proxy {
		p := proxy(t).(*kthPath)
		p.url = e.URL
		return p
	}
	kthtrip.GivenUp(t, e)
}

func kthEngine(t *testing.T) kthtrip.Engine {
	pg := services.PostgreSQL(t, services.Setting("max_connections", "400"))
	url := pg.URL(pg.CreateDatabase(t))
	check(t, released(open(t, url).Mutex("schema").Acquire(t.Context())))
	var faults []kthtrip.Fault
	for _, m := range mishaps {
		faults = append(faults, kthtrip.Fault(m.name))
	}
	return kthtrip.Engine{
		URL:    url,
		Proxy:  func(t testing.TB) kthtrip.Proxy { return &kthPath{newTripProxy(t, pg, 0, mishap{}), url} },
		Faults: faults,
		Left:   rowsLeft(t, connect(t, url)),
		Bound:  tripBound,
	}
}

// kthPath is the way of one client to the server.
type kthPath struct {
	*tripProxy
	url string
}

var _ kthtrip.Proxy = (*kthPath)(nil)

func (p *kthPath) Open(ctx context.Context) (driver.Driver, error) {
	return driver.Open(ctx, p.URL(p.url)+"&pool_max_conns=4&holdfast_keepalive=1s&holdfast_timeout=2s")
}

func (p *kthPath) Arm(k int, f kthtrip.Fault) {
	for _, m := range append([]mishap{silence, deafness}, mishaps...) {
		if m.name == string(f) {
			p.arm(k, m)
		}
	}
}

func (p *kthPath) Disarm() bool { return p.disarm() }
func (p *kthPath) Conns() int   { return p.open() }
func (p *kthPath) Killed() bool { return false }
func (p *kthPath) End()         { p.close() }

// rowsLeft lists the rows of names with a prefix, once what the dead left is swept, as
// every program does from time to time. Answers are kept for ten minutes on purpose.
func rowsLeft(t testing.TB, look *pgx.Conn) func(testing.TB, string) []string {
	one := make(chan struct{}, 1)
	return func(_ testing.TB, prefix string) (left []string) {
		one <- struct{}{}
		defer func() { <-one }()
		_, err := look.Exec(t.Context(), "select holdfast_v10.sweep()")
		check(t, err)
		rows, err := look.Query(t.Context(), `
			select 'claim ' || name from holdfast.claim where starts_with(name, $1) union all
			select 'resource ' || name from holdfast.resource where starts_with(name, $1) union all
			select 'counter ' || name from holdfast.counter where starts_with(name, $1) union all
			select 'sequence ' || name from holdfast.sequence where starts_with(name, $1) union all
			select 'limiter ' || name from holdfast.limiter where starts_with(name, $1) union all
			select 'usage ' || name from holdfast.usage where starts_with(name, $1) union all
			select 'key ' || key from holdfast.kv where starts_with(key, $1) union all
			select 'session ' || owner from holdfast.session where $1 = '' union all
			select 'watcher ' || nonce from holdfast.watcher where $1 = ''`, prefix)
		check(t, err)
		left, err = pgx.CollectRows(rows, pgx.RowTo[string])
		check(t, err)
		return left
	}
}
