package world_test

import (
	"flag"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/internal/world"
)

var (
	budget = flag.Duration("world.budget", 0, "run new worlds for this long")
	first  = flag.Uint64("world.first", 1, "the first seed")
	count  = flag.Int("world.seeds", share, "how many worlds to run without a budget")
	length = flag.Duration("world.time", time.Minute, "how long faults happen in a world")
)

// share is how many worlds an ordinary test run has.
const share = 5

func TestWorlds(t *testing.T) {
	began, total, seeds := time.Now(), world.Result{}, 0
	for seed := *first; *budget == 0 && seeds < *count || time.Since(began) < *budget; seed++ {
		res := run(t, seed)
		total.Add(res)
		seeds++
		for _, v := range res.Violations {
			t.Errorf("seed %d: %s", seed, v)
		}
		if t.Failed() {
			break
		}
	}
	report(t, seeds, &total, time.Since(began))
	if *budget >= 10*time.Minute {
		covered(t, &total)
	}
}

// covered: a long run has seen every command by every protocol, every answer, fault
// and turn of a watch.
func covered(t *testing.T, r *world.Result) {
	t.Helper()
	want := []string{"repeated by key", "buffered again", "not swapped", "a start without a file is refused", "snapshot sent", "backup saved",
		"watch ready", "watch resync", "watch broken at a resync", "watch compacted", "watch event",
		"asked while late", "event lock:stale", "event lock:reclaimed", "kind exhausted",
		"kind ok", "kind held", "kind lost", "kind unavailable", "kind context deadline exceeded"}
	for _, x := range strings.Split(faults, ", ") {
		want = append(want, "fault "+x)
	}
	for protocol, list := range commands {
		for _, x := range strings.Split(everywhere+", "+list, ", ") {
			want = append(want, "answer "+protocol+" "+x+": done")
		}
		for _, a := range []string{"add: not done", "add: unknown", "lock: unknown", "put: unknown"} {
			want = append(want, "answer "+protocol+" "+a)
		}
	}
	for _, name := range want {
		if r.Counts[name] == 0 {
			t.Errorf("never seen: %s", name)
		}
	}
}

// What a long run has to see.
const (
	faults = "kill, power, stop, isolate, one-way cut, client cut, connections broken, deaf leader, lag, lost file, pause, slow disk, slow disk that lags, " +
		"EIO at sync, EIO at read, EIO at write, EIO at open, EIO at create, EIO at rename, EIO at sync directory, delay, corrupt, power during a write, " +
		"all at once, snapshot corrupted, snapshot broken off, snapshot delayed, snapshot meets another, leadership handed over"
	everywhere = "add, lock, try lock, read, try read, write, try write, semaphore, try semaphore, election, try election, release lock, release read, " +
		"release write, release semaphore, release election, proclaim, upgrade, downgrade, put, set, compare and set, reserve, count down, wait for latch, arrive"
)

// commands are those that only one protocol has here.
var commands = map[string]string{
	"go": "acquire all, release all, buffered add, flush, open session, keep session, revoke session, txn, extend, force release, hand over, bulk put",
	"grpc": "open session, keep session, end session, lock on a session, hand over, open kept session, lock on a kept session, ask beside what is kept, " +
		"keep kept session, end kept session, ask for more than may be",
	"rest": "renew",
}

func run(t *testing.T, seed uint64) (res world.Result) {
	synctest.Test(t, func(*testing.T) { res = world.Run(world.Options{Seed: seed, Time: *length}) })
	return res
}

func report(t *testing.T, seeds int, r *world.Result, took time.Duration) {
	t.Logf("proof: %d worlds, %.2f simulated hours in %s (%.0f times real time), %d answers, %d faults, %d events, %d violations",
		seeds, r.Simulated.Hours(), took.Round(time.Second), r.Simulated.Seconds()/took.Seconds(), r.Sum("answer "), r.Sum("fault "), r.Sum("event "), len(r.Violations))
	for _, name := range r.Names("") {
		t.Logf("proof: %8d %s", r.Counts[name], name)
	}
}
