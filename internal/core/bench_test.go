package core_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// The benchmarks print ratios to what they are measured against: seconds differ
// between machines, ratios hardly.

// rig drives a machine through encoded entries, as a server would.
type rig struct {
	m     *core.Machine
	out   core.Output
	frame []byte
	entry []byte
	seqs  map[core.SessionID]uint64
	marks map[core.SessionID]uint64 // the mark that a session stays at
	cmd   [1]core.Command
	want  [1]core.Want
	now   int64
	told  func(*core.Event) // is told every event
	// version is that of the entries; 0: the newest.
	version uint8
}

func newRig(c core.Config) *rig {
	return &rig{m: core.New(c), seqs: map[core.SessionID]uint64{}, marks: map[core.SessionID]uint64{}}
}

func sessionID(n int) (id core.SessionID) {
	id[0] = 1
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

func (r *rig) open(n int, ttl time.Duration) core.SessionID {
	id := sessionID(n)
	r.do(id, core.Command{Op: core.OpOpen, TTL: int64(ttl)})
	r.seqs[id] = 1
	return id
}

// do applies one command as an entry of its own and returns its result.
func (r *rig) do(id core.SessionID, c core.Command) *core.Result {
	r.cmd[0] = c
	mark := r.seqs[id]
	if c.Op != core.OpOpen && c.Op != core.OpEnd {
		r.cmd[0].Seq = mark
		r.seqs[id] = mark + 1
	}
	if kept := r.marks[id]; kept != 0 {
		mark = kept
	}
	r.frame = core.AppendFrame(r.frame[:0], &core.Frame{Session: id, Attempt: 1, Mark: mark, Commands: r.cmd[:]})
	r.apply(core.Entry{Now: r.now, Frames: [][]byte{r.frame}})
	return &r.out.Replies[0].Results[0]
}

func (r *rig) apply(e core.Entry) {
	if e.Version == 0 {
		e.Version = r.version
	}
	r.entry = core.AppendEntry(r.entry[:0], &e)
	r.out.Reset()
	if err := r.m.Apply(r.entry, &r.out); err != nil {
		panic(err)
	}
	for i := range r.out.Events {
		if r.told != nil {
			r.told(&r.out.Events[i])
		}
	}
}

// acquire returns the number of the claim.
func (r *rig) acquire(id core.SessionID, name string) uint64 {
	r.want[0] = core.Want{Name: name, Kind: core.Mutex}
	res := r.do(id, core.Command{Op: core.OpAcquire, Wants: r.want[:]})
	if res.Code != core.CodeOK && res.Code != core.CodeQueued {
		panic(res.Text)
	}
	return res.Seq
}

func (r *rig) release(id core.SessionID, claim uint64) {
	if res := r.do(id, core.Command{Op: core.OpRelease, Target: claim}); res.Code != core.CodeOK {
		panic(res.Text)
	}
}

func lockName(i int) string { return fmt.Sprintf("bench/some-lock-%08d", i) } // 24 bytes

// fill gives out n locks, ten to a session.
func (r *rig) fill(n int, ttl time.Duration) {
	var id core.SessionID
	for i := range n {
		if i%10 == 0 {
			id = r.open(1+i/10, ttl)
		}
		r.acquire(id, lockName(i))
	}
}

// block is how many operations are timed together: few enough that some blocks
// run undisturbed on a busy machine.
const block = 250

// least runs f for each of n operations and returns the time of one in the best
// block.
func least(n int, f func(i int)) time.Duration {
	runtime.GC()
	best := time.Duration(1 << 62)
	for i := 0; i+block <= n; i += block {
		begin := time.Now()
		for j := i; j < i+block; j++ {
			f(j)
		}
		best = min(best, time.Since(begin))
	}
	return best / block
}

// mapPair is the baseline: insert and delete of a 24-byte key in a map under a
// mutex.
func mapPair() time.Duration {
	var mu sync.Mutex
	m := map[string]int{}
	names := make([]string, 1024)
	for i := range names {
		names[i] = lockName(i)
	}
	return least(200_000, func(i int) {
		mu.Lock()
		m[names[i&1023]] = i
		mu.Unlock()
		mu.Lock()
		delete(m, names[i&1023])
		mu.Unlock()
	})
}

// pair is an acquire and a release of names that are known, or new each time.
func (r *rig) pair(id core.SessionID, fresh bool) time.Duration {
	const n = 100_000
	names := make([]string, 1024)
	if fresh {
		names = make([]string, n)
	}
	for i := range names {
		names[i] = fmt.Sprintf("bench/some-lock-%08d/%d", i*7919%1_000_003, len(names))
	}
	return least(n, func(i int) { r.release(id, r.acquire(id, names[i%len(names)])) })
}

// pairs encodes n acquires and releases, each an entry of its own, beginning
// with number 1 of the session.
func pairs(id core.SessionID, n int) [][]byte {
	var all [][]byte
	seq := uint64(1)
	one := func(c core.Command) {
		c.Seq = seq
		f := core.AppendFrame(nil, &core.Frame{Session: id, Attempt: seq, Mark: seq, Commands: []core.Command{c}})
		all = append(all, core.AppendEntry(nil, &core.Entry{Frames: [][]byte{f}}))
		seq++
	}
	for i := range n {
		one(core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: lockName(i % 1024), Kind: core.Mutex}}})
		one(core.Command{Op: core.OpRelease, Target: seq - 1})
	}
	return all
}

// BenchmarkAcquireRelease: both through Apply, with decoding, dedupe, events and
// hash, each an entry of its own.
func BenchmarkAcquireRelease(b *testing.B) {
	const n = 20_000
	base, per := mapPair(), time.Duration(1<<62)
	entries := pairs(sessionID(0), n)
	for b.Loop() {
		r := newRig(core.Config{})
		r.open(0, time.Hour)
		per = min(per, least(n, func(i int) {
			for _, e := range entries[2*i : 2*i+2] {
				r.out.Reset()
				if err := r.m.Apply(e, &r.out); err != nil {
					b.Fatal(err)
				}
			}
		}))
	}
	base = min(base, mapPair())
	b.ReportMetric(float64(per), "ns/pair")
	b.ReportMetric(float64(base), "ns/map")
	b.ReportMetric(float64(per)/float64(base), "maps")
}

// BenchmarkBeside: the same beside many known names as beside few; Idle is so
// small that new names are also forgotten again.
func BenchmarkBeside(b *testing.B) {
	for b.Loop() {
		few, many := newRig(core.Config{Idle: 2048}), newRig(core.Config{Idle: 2048})
		few.fill(1000, time.Hour)
		many.fill(1_000_000, time.Hour)
		a, z := few.open(1<<20, time.Hour), many.open(1<<20, time.Hour)
		known := float64(many.pair(z, false)) / float64(few.pair(a, false))
		fresh := float64(many.pair(z, true)) / float64(few.pair(a, true))
		b.ReportMetric(known, "known-ratio")
		b.ReportMetric(fresh, "new-ratio")
	}
}

func heapBytes() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// BenchmarkMillion: heap for each of a million held locks, ten to a session,
// and the time of expiring them to that of granting them.
func BenchmarkMillion(b *testing.B) {
	const n = 1_000_000
	for b.Loop() {
		before := heapBytes()
		r := newRig(core.Config{})
		begin := cpu()
		r.fill(n, time.Second)
		granted := cpu() - begin
		r.out, r.seqs = core.Output{}, map[core.SessionID]uint64{}
		b.ReportMetric(float64(heapBytes()-before)/n, "B/lock")
		r.now = int64(time.Second)
		begin = cpu()
		longest := time.Duration(0)
		for {
			if due, ok := r.m.Due(); !ok || due > r.now {
				break
			}
			step := cpu()
			r.apply(core.Entry{Now: r.now})
			longest = max(longest, cpu()-step)
		}
		expired := cpu() - begin
		b.ReportMetric(float64(expired)/float64(granted), "expire/grant")
		b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
		if list, _ := r.m.List("", "", "", 1); len(list) > 0 {
			b.Fatal("locks are left")
		}
	}
}

// drainTime is the time of releasing a mutex along its whole queue.
func drainTime(waiters int) time.Duration {
	best := time.Duration(1 << 62)
	for range 5 {
		r := newRig(core.Config{Waiters: waiters})
		ids, claims := make([]core.SessionID, waiters+1), make([]uint64, waiters+1)
		for i := range ids {
			ids[i] = r.open(i, time.Hour)
			claims[i] = r.acquire(ids[i], "hot")
		}
		runtime.GC()
		begin := cpu()
		for i := range ids {
			r.release(ids[i], claims[i])
		}
		best = min(best, cpu()-begin)
	}
	return best
}

func BenchmarkDrain(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(drainTime(10_000))/float64(drainTime(1_000)), "ten-times-ratio")
	}
}

// BenchmarkSnapshot: while a snapshot of a million locks is written in chunks,
// acquire, release and renewals go on between them; the longest Apply counts.
func BenchmarkSnapshot(b *testing.B) {
	for b.Loop() {
		r := newRig(core.Config{})
		r.fill(1_000_000, time.Hour)
		runtime.GC()
		begin := time.Now()
		v := r.m.View()
		taking := time.Since(begin)
		var chunk []byte
		var size int
		var longest, most, writing time.Duration
		for i, done := 0, false; !done; i++ {
			begin := time.Now()
			chunk, done = v.Next(chunk[:0], 64<<10)
			writing += time.Since(begin)
			size += len(chunk)
			begin, used := time.Now(), cpu()
			id := sessionID(1 + i*37%100_000)
			r.release(id, r.acquire(id, "busy"+strings.Repeat("x", i%7)))
			r.apply(core.Entry{Now: r.now, Renewals: []core.Renewal{{Session: sessionID(1 + i*91%100_000)}}})
			longest, most = max(longest, time.Since(begin)), max(most, cpu()-used)
		}
		v.Close()
		b.ReportMetric(float64(taking.Microseconds()), "view-µs")
		b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
		b.ReportMetric(float64(most.Microseconds())/1000, "longest-cpu-ms")
		b.ReportMetric(float64(writing.Milliseconds()), "writing-ms")
		b.ReportMetric(float64(size)/1e6, "MB")
	}
}

// BenchmarkPrefixDelete: deleting a million keys page by page: what an entry takes,
// with pages as clients ask for them and as great as they get, and how much longer
// that is beside a million keys than beside few.
func BenchmarkPrefixDelete(b *testing.B) {
	for b.Loop() {
		few, many, most := deletePage(20_000, 1000), deletePage(1_000_000, 1000), deletePage(1_000_000, 10_000)
		b.ReportMetric(float64(many.Microseconds())/1000, "page-ms")
		b.ReportMetric(float64(most.Microseconds())/1000, "longest-ms")
		b.ReportMetric(float64(many)/float64(few), "beside-many-ratio")
	}
}

// deletePage is the processor time of one of the pages, the median, in which n keys
// are deleted.
func deletePage(n int, page uint64) time.Duration {
	r := newRig(core.Config{})
	id := r.open(1, time.Hour)
	r.put(id, keyNames(n), core.SessionID{})
	runtime.GC()
	var all []time.Duration
	for more := true; more; {
		begin := cpu()
		res := r.do(id, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyDelete, Key: "p/", Prefix: true, Limit: page}}})
		all = append(all, cpu()-begin)
		more = res.Keys[0].More
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkMany: what is done beside 100,000 holders or waiters of one name, to the
// same beside 10.
func BenchmarkMany(b *testing.B) {
	for b.Loop() {
		few, many := newRig(core.Config{Waiters: 200_000}), newRig(core.Config{Waiters: 200_000})
		few.throng(10)
		many.throng(100_000)
		b.ReportMetric(float64(many.byToken())/float64(few.byToken()), "by-token-ratio")
		b.ReportMetric(float64(many.besideLate())/float64(few.besideLate()), "late-ratio")
		b.ReportMetric(float64(many.tries())/float64(few.tries()), "try-ratio")
	}
}

func manyPool(limit int64) []core.Want {
	return []core.Want{{Name: "pool", Kind: core.Semaphore, Mode: core.Shared, Weight: 1, Limit: limit}}
}

// throng has n hold a semaphore with room for one more, and n wait for a lock, while
// a session that nobody meets is late.
func (r *rig) throng(n int) {
	late, all := sessionID(1<<21), r.open(1, time.Hour)
	r.do(late, core.Command{Op: core.OpOpen, TTL: int64(time.Second), Policy: core.OnNextAcquire})
	r.seqs[late] = 1
	r.acquire(late, "elsewhere")
	r.now = int64(time.Second)
	r.apply(core.Entry{Now: r.now})
	for i := range n {
		r.do(r.open(2+i, time.Hour), core.Command{Op: core.OpAcquire, Wants: manyPool(int64(n + 1))})
		r.acquire(all, "hot")
	}
}

// byToken is an acquire of the semaphore and its release by token.
func (r *rig) byToken() time.Duration {
	id := r.open(1<<20, time.Hour)
	return least(20_000, func(int) {
		res := r.do(id, core.Command{Op: core.OpAcquire, Wants: manyPool(0)})
		r.expect(core.CodeOK, r.do(id, core.Command{Op: core.OpRelease, Name: "pool", Token: res.Token}))
	})
}

// besideLate is a try that finds the semaphore full, and nobody to take from.
func (r *rig) besideLate() time.Duration {
	id := r.open(1<<20+1, time.Hour)
	r.do(id, core.Command{Op: core.OpAcquire, Wants: manyPool(0)})
	return least(20_000, func(int) {
		r.expect(core.CodeHeld, r.do(id, core.Command{Op: core.OpAcquire, Flags: core.Try, Wants: manyPool(0)}))
	})
}

// tries is a try of the lock.
func (r *rig) tries() time.Duration {
	id := r.open(1<<20+2, time.Hour)
	return least(20_000, func(int) {
		r.expect(core.CodeHeld, r.do(id, core.Command{Op: core.OpAcquire, Flags: core.Try, Wants: []core.Want{{Name: "hot", Kind: core.Mutex}}}))
	})
}

func (r *rig) expect(code core.Code, res *core.Result) {
	if res.Code != code {
		panic(res.Text)
	}
}

// BenchmarkAfter: heap after a million locks, keys or sessions have ended, to that before.
func BenchmarkAfter(b *testing.B) {
	for b.Loop() {
		for name, fill := range endings(1_000_000) {
			b.ReportMetric(after(core.Config{}, fill), name+"-ratio")
		}
	}
}

// TestAfter: what has ended takes no memory.
func TestAfter(t *testing.T) {
	for name, fill := range endings(100_000) {
		if ratio := after(core.Config{Idle: 1000, Ended: 1000}, fill); ratio > 0.25 {
			t.Errorf("after the end of all %s %.0f %% of their memory is still used", name, 100*ratio)
		} else {
			t.Logf("%s: %.1f %%", name, 100*ratio)
		}
	}
}

// endings are what makes n of something that is due after a second.
func endings(n int) map[string]func(*rig) {
	return map[string]func(*rig){
		"locks": func(r *rig) {
			r.fill(n, time.Second)
			r.seqs = map[core.SessionID]uint64{}
			r.now = int64(time.Second)
		},
		"keys": func(r *rig) {
			id := r.open(1, time.Second)
			r.put(id, keyNames(n), id)
			r.now = int64(time.Second)
		},
		"sessions": func(r *rig) {
			for i := range n {
				r.open(i, time.Second)
			}
			r.seqs = map[core.SessionID]uint64{}
			r.now = int64(time.Second)
		},
	}
}

// after fills a machine, lets all that is due end, and compares.
func after(c core.Config, fill func(*rig)) float64 {
	before := heapBytes()
	r := newRig(c)
	fill(r)
	r.out = core.Output{}
	peak := heapBytes() - before
	r.drained()
	r.out = core.Output{}
	left := heapBytes() - before
	runtime.KeepAlive(r)
	return float64(left) / float64(peak)
}
