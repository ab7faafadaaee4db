package servers

import (
	"context"
	"strings"
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

// stands are the servers, each started when somebody first asks for it.
type stands struct {
	program         func() string
	one, three      func() *ours
	etcd, etcdThree func() *etcd
	zookeeper       func() *zookeeper
	redis           func() *redis
	postgres        func() *postgres
}

func newStands(t *testing.T) *stands {
	s := &stands{program: sync.OnceValue(func() string { return build(t, "../..", "./cmd/holdfast") })}
	etcdProgram := sync.OnceValue(func() string { return build(t, ".", "./etcd") })
	s.one = sync.OnceValue(func() *ours { return startOurs(t, s.program(), 1) })
	s.three = sync.OnceValue(func() *ours { return startOurs(t, s.program(), 3) })
	s.etcd = sync.OnceValue(func() *etcd { return startEtcd(t, etcdProgram(), 1) })
	s.etcdThree = sync.OnceValue(func() *etcd { return startEtcd(t, etcdProgram(), 3) })
	s.zookeeper = sync.OnceValue(func() *zookeeper { return startZooKeeper(t) })
	s.redis = sync.OnceValue(func() *redis { return startRedis(t) })
	s.postgres = sync.OnceValue(func() *postgres { return startPostgreSQL(t) })
	return s
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
	begin func() turn
}

// field prepares the plans that have only in their names.
func field(t *testing.T, s *stands, only string) (work []*workload, claims []claim) {
	for _, p := range plans(t, s) {
		if !strings.Contains(p.what, only) {
			continue
		}
		w := &p.workload
		for _, e := range p.who {
			w.entrants = append(w.entrants, &entrant{who: e.name, turn: e.begin()})
		}
		work = append(work, w)
		for _, c := range p.claims {
			c.on = w
			claims = append(claims, c)
		}
	}
	return work, claims
}

// plans are what is asked of the server, with floors and goals.
func plans(t *testing.T, s *stands) []plan {
	return []plan{
		{workload{what: "lock and unlock, 256 callers", slice: time.Second}, []who{
			{us, func() turn { return s.one().pairs(t, 256) }},
			{etcds, func() turn { return s.etcd().pairs(t, 256) }},
			{zks, func() turn { return s.zookeeper().pairs(t, 256) }},
			{rueidislocks, func() turn { return s.redis().pairs(t, 256) }},
			{rows, func() turn { return s.postgres().pairs(t, 256) }},
		}, []claim{
			{peer: etcds, measure: rate, floor: 4, goal: 10},
			{peer: etcds, measure: cpu, floor: 0.3, goal: 0.1},
			{peer: rueidislocks, measure: rate, goal: 1.5},
			{peer: zks, measure: rate},
			{peer: rows, measure: rate},
		}},
		{workload{what: "lock and unlock, 256 callers, three nodes", slice: time.Second}, []who{
			{us, func() turn { return s.three().pairs(t, 256) }},
			{etcds, func() turn { return s.etcdThree().pairs(t, 256) }},
		}, []claim{{peer: etcds, measure: rate, floor: 3, goal: 8}}},
		{workload{what: "lock and unlock, one caller", slice: time.Second}, []who{
			{us, func() turn { return s.one().pairs(t, 1) }},
			{etcds, func() turn { return s.etcd().pairs(t, 1) }},
			{zks, func() turn { return s.zookeeper().pairs(t, 1) }},
			{rueidislocks, func() turn { return s.redis().pairs(t, 1) }},
		}, []claim{{peer: etcds, measure: p50, floor: 0.8, goal: 0.5}}},
		relayPlan(t, s, "hand-over, 8 waiters", 8),
		relayPlan(t, s, "hand-over, 64 waiters", 64),
		{workload{what: "one counter, 64 callers", slice: 2 * time.Second}, []who{
			{us, func() turn { return s.one().counter(t, 64) }},
			{incrs, func() turn { return s.redis().counter(t, 64) }},
			{etcds, func() turn { return s.etcd().counter(t, 64) }},
		}, []claim{{peer: incrs, measure: rate, goal: 1.2}, {peer: etcds, measure: rate, floor: 50}}},
		{workload{what: "1,000 watchers of one key, events", slice: 2 * time.Second}, []who{
			{us, func() turn { return s.one().fan(t, 1000) }},
			{etcds, func() turn { return s.etcd().fan(t, 1000) }},
		}, []claim{{peer: etcds, measure: rate, floor: 1.2, goal: 3}}},
	}
}

func relayPlan(t *testing.T, s *stands, what string, waiters int) plan {
	return plan{workload{what: what, slice: 2 * time.Second, crowd: true}, []who{
		{us, func() turn { return s.one().crowd(t, waiters) }},
		{etcds, func() turn { return s.etcd().crowd(t, waiters) }},
		{zks, func() turn { return s.zookeeper().crowd(t, waiters) }},
	}, []claim{{peer: etcds, measure: p50, floor: 0.4}, {peer: zks, measure: p50, goal: 1}}}
}
