package servers

import (
	"context"
	"sync"
	"testing"
	"time"
)

const (
	perConnection = 16  // callers that share a connection
	perFeed       = 100 // watchers that do
	valueSize     = 32  // bytes that are written and watched
)

func connections(callers int) int { return (callers + perConnection - 1) / perConnection }

func many[T any](n int, one func(i int) T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = one(i)
	}
	return all
}

// await waits until everybody is ready.
func await(t *testing.T, ctx context.Context, ready <-chan struct{}, n int) {
	for range n {
		select {
		case <-ready:
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
		}
	}
}

// built are the programs, each built when it is first asked for.
type built struct{ holdfast, etcd func() string }

func newBuilt(t *testing.T) built {
	return built{
		holdfast: sync.OnceValue(func() string { return build(t, "../..", "./cmd/holdfast") }),
		etcd:     sync.OnceValue(func() string { return build(t, ".", "./etcd") }),
	}
}

// The names of the entrants.
const (
	us, etcds, zks = "holdfast", "etcd", "ZooKeeper"
	rueidislocks   = "Redis, rueidislock"
	incrs          = "Redis, INCR"
	rows           = "PostgreSQL, lease in a row"
)

// plan is a workload before anybody has been started for it.
type plan struct {
	workload
	who    []who
	claims []claim
}

type who struct {
	name  string
	begin func(t *testing.T, b built) turn
}

// start gets the entrants ready, each with a server of its own.
func (p *plan) start(t *testing.T, b built) *workload {
	w := p.workload
	for _, e := range p.who {
		w.entrants = append(w.entrants, &entrant{who: e.name, turn: e.begin(t, b)})
	}
	return &w
}

// judge is what became of the claims.
func (p *plan) judge(w *workload) []verdict {
	var all []verdict
	for _, c := range p.claims {
		c.on = w
		all = append(all, c.judge())
	}
	return all
}

// plans are what is asked of the server, with floors and goals.
func plans() []plan {
	return []plan{
		{workload{what: "lock and unlock, 256 callers", slice: time.Second}, []who{
			{us, func(t *testing.T, b built) turn { return startOurs(t, b.holdfast(), 1).pairs(t, 256) }},
			{etcds, func(t *testing.T, b built) turn { return startEtcd(t, b.etcd(), 1).pairs(t, 256) }},
			{zks, func(t *testing.T, _ built) turn { return startZooKeeper(t).pairs(t, 256) }},
			{rueidislocks, func(t *testing.T, _ built) turn { return startRedis(t).pairs(t, 256) }},
			{rows, func(t *testing.T, _ built) turn { return startPostgreSQL(t).pairs(t, 256) }},
		}, []claim{
			{peer: etcds, measure: rate, floor: 4, goal: 10},
			{peer: etcds, measure: cpu, floor: 0.3, goal: 0.1},
			{peer: rueidislocks, measure: rate, goal: 1.5},
			{peer: zks, measure: rate},
			{peer: rows, measure: rate},
		}},
		{workload{what: "lock and unlock, 256 callers, three nodes", slice: time.Second}, []who{
			{us, func(t *testing.T, b built) turn { return startOurs(t, b.holdfast(), 3).pairs(t, 256) }},
			{etcds, func(t *testing.T, b built) turn { return startEtcd(t, b.etcd(), 3).pairs(t, 256) }},
		}, []claim{{peer: etcds, measure: rate, floor: 3, goal: 8}}},
		{workload{what: "lock and unlock, one caller", slice: time.Second}, []who{
			{us, func(t *testing.T, b built) turn { return startOurs(t, b.holdfast(), 1).pairs(t, 1) }},
			{etcds, func(t *testing.T, b built) turn { return startEtcd(t, b.etcd(), 1).pairs(t, 1) }},
			{zks, func(t *testing.T, _ built) turn { return startZooKeeper(t).pairs(t, 1) }},
			{rueidislocks, func(t *testing.T, _ built) turn { return startRedis(t).pairs(t, 1) }},
		}, []claim{{peer: etcds, measure: p50, floor: 0.8, goal: 0.5}}},
		relayPlan("hand-over, 8 waiters", 8),
		relayPlan("hand-over, 64 waiters", 64),
		{workload{what: "one counter, 64 callers", slice: 2 * time.Second}, []who{
			{us, func(t *testing.T, b built) turn { return startOurs(t, b.holdfast(), 1).counter(t, 64) }},
			{incrs, func(t *testing.T, _ built) turn { return startRedis(t).counter(t, 64) }},
			{etcds, func(t *testing.T, b built) turn { return startEtcd(t, b.etcd(), 1).counter(t, 64) }},
		}, []claim{{peer: incrs, measure: rate, goal: 1.2}, {peer: etcds, measure: rate, floor: 50}}},
		{workload{what: "1,000 watchers of one key, events", slice: 2 * time.Second}, []who{
			{us, func(t *testing.T, b built) turn { return startOurs(t, b.holdfast(), 1).fan(t, 1000) }},
			{etcds, func(t *testing.T, b built) turn { return startEtcd(t, b.etcd(), 1).fan(t, 1000) }},
		}, []claim{{peer: etcds, measure: rate, floor: 1.2, goal: 3}}},
	}
}

func relayPlan(what string, waiters int) plan {
	return plan{workload{what: what, slice: 2 * time.Second, crowd: true}, []who{
		{us, func(t *testing.T, b built) turn { return startOurs(t, b.holdfast(), 1).crowd(t, waiters) }},
		{etcds, func(t *testing.T, b built) turn { return startEtcd(t, b.etcd(), 1).crowd(t, waiters) }},
		{zks, func(t *testing.T, _ built) turn { return startZooKeeper(t).crowd(t, waiters) }},
	}, []claim{{peer: etcds, measure: p50, floor: 0.4}, {peer: zks, measure: p50, goal: 1}}}
}
