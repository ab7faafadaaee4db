package core_test

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/limit"
)

func perSecond(n int64) limit.Rate { return limit.Rate{Count: n, Per: time.Second} }

// limit asks a limiter and returns the answer of a command that has to succeed.
func (r *rig) limit(t *testing.T, id core.SessionID, name string, a core.LimitAsk) core.LimitAnswer {
	t.Helper()
	return *r.must(t, id, core.Command{Op: core.OpLimit, Name: name, Ask: &a}, core.CodeOK).Limit
}

// refuses asks what has to be refused with that code.
func (r *rig) refuses(t *testing.T, id core.SessionID, name string, a core.LimitAsk, code core.Code) string {
	t.Helper()
	return r.must(t, id, core.Command{Op: core.OpLimit, Name: name, Ask: &a}, code).Text
}

// A request that is sent again is answered as it was, at the time that it was decided
// at, and counts once, on a restored machine too.
func TestLimiter_ExactlyOnce(t *testing.T) {
	r := newRig(core.Config{})
	id := r.open(1, time.Hour)
	r.marks[id] = 1
	ask := core.Command{Op: core.OpLimit, Name: "l", Ask: &core.LimitAsk{Key: "k", Rate: perSecond(3), Cost: 2}}
	first := r.must(t, id, ask, core.CodeOK)
	r.now = int64(100 * time.Millisecond)
	for range 3 {
		again := r.again(id, first.Seq, ask)
		if again.Limit == nil || *again.Limit != *first.Limit || !again.OK {
			t.Fatalf("sent again it is answered %+v, not %+v", again.Limit, first.Limit)
		}
		r.m = r.restored(t)
	}
	if left := r.limit(t, id, "l", core.LimitAsk{Key: "k", Op: core.LimitPeek}); left.Decision.Remaining != 1 {
		t.Errorf("of 3, 2 were taken: %d are left", left.Decision.Remaining)
	}
}

// A look from the outside, some time after the last entry, is answered as a command at that
// time is, by every kind of clock, and changes nothing; a change is refused.
func TestLimiter_Peek(t *testing.T) {
	for name, rate := range map[string]limit.Rate{
		"bucket":   {Count: 3, Per: time.Hour},
		"log":      {Count: 3, Per: time.Hour, Algorithm: limit.SlidingLog},
		"calendar": {Count: 3, Every: limit.Day, Algorithm: limit.CalendarWindow},
	} {
		r := newRig(core.Config{})
		id := r.open(1, 24*time.Hour)
		r.apply(core.Entry{Now: r.now, Seconds: time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC).Unix()})
		r.limit(t, id, "l", core.LimitAsk{Key: "k", Cost: 3, Rate: rate})
		peek := core.Command{Op: core.OpLimit, Name: "l", Ask: &core.LimitAsk{Key: "k", Op: core.LimitPeek, Cost: 1}}
		before := (&subject{Machine: r.m}).snapshot()
		for range 5 {
			r.now += int64(21 * time.Minute)
			res := r.m.Peek("", &peek, r.now)
			if res.Code != core.CodeOK || res.Limit == nil {
				t.Fatalf("%s: %+v", name, res)
			}
			if !bytes.Equal(before, (&subject{Machine: r.m}).snapshot()) {
				t.Fatalf("%s: a look has changed something", name)
			}
			if is := r.limit(t, id, "l", *peek.Ask); is != *res.Limit {
				t.Errorf("%s: the look says %+v, the command %+v", name, *res.Limit, is)
			}
			before = (&subject{Machine: r.m}).snapshot()
		}
		take := core.Command{Op: core.OpLimit, Name: "l", Ask: &core.LimitAsk{Key: "k", Cost: 1}}
		if res := r.m.Peek("", &take, r.now); res.Code != core.CodeInvalid {
			t.Errorf("%s: a change is answered with %+v", name, res)
		}
		if res := r.m.Peek("never used", &peek, r.now); res.Code != core.CodeNotExist {
			t.Errorf("%s: a namespace that was never used is answered with %+v", name, res)
		}
	}
}

// Decisions take no revision and are not told; SetRate, Reset of a key in use, and
// Delete are.
func TestLimiter_Events(t *testing.T) {
	r := newRig(core.Config{})
	id := r.open(1, time.Hour)
	take := core.LimitAsk{Key: "k", Rate: perSecond(3), Cost: 1}
	steps := []struct {
		what  string
		c     core.Command
		event bool
	}{
		{"the first use", core.Command{Op: core.OpLimit, Ask: &take}, false},
		{"another use", core.Command{Op: core.OpLimit, Ask: &take}, false},
		{"a peek", core.Command{Op: core.OpLimit, Ask: &core.LimitAsk{Op: core.LimitPeek, Key: "k", Cost: 9}}, false},
		{"a reset", core.Command{Op: core.OpLimit, Ask: &core.LimitAsk{Op: core.LimitReset, Key: "k"}}, true},
		{"a reset of an unused key", core.Command{Op: core.OpLimit, Ask: &core.LimitAsk{Op: core.LimitReset, Key: "unused"}}, false},
		{"a rate", core.Command{Op: core.OpLimit, Ask: &core.LimitAsk{Op: core.LimitSetRate, Rate: perSecond(4)}}, true},
		{"a delete", core.Command{Op: core.OpDelete, Kind: core.Limiter}, true},
	}
	for _, s := range steps {
		before := r.m.Revision()
		s.c.Name = "l"
		r.must(t, id, s.c, core.CodeOK)
		if told := len(r.out.Events) == 1; told != s.event || (r.m.Revision() != before) != s.event {
			t.Errorf("%s: events %+v, and the revision goes from %d to %d", s.what, r.out.Events, before, r.m.Revision())
		}
		if s.event && r.out.Events[0].Kind.String()+":"+r.out.Events[0].Verb.String() != "limit:changed" {
			t.Errorf("%s is told as %+v", s.what, r.out.Events[0])
		}
	}
}

// What makes no sense is refused and changes nothing: neither the limiter nor a key
// is made.
func TestLimiter_BadInput(t *testing.T) {
	r := newRig(core.Config{})
	id := r.open(1, time.Hour)
	r.must(t, id, core.Command{Op: core.OpAcquire, Wants: mutexes("m")}, core.CodeOK)
	rate := perSecond(3)
	for what, c := range map[string]struct {
		name string
		ask  core.LimitAsk
		code core.Code
	}{
		"no rate":             {"l", core.LimitAsk{Cost: 1}, core.CodeNotExist},
		"no rate to set":      {"l", core.LimitAsk{Op: core.LimitSetRate}, core.CodeInvalid},
		"a rate of 0 time":    {"l", core.LimitAsk{Rate: limit.Rate{Count: 1}}, core.CodeInvalid},
		"a negative rate":     {"l", core.LimitAsk{Rate: limit.Rate{Count: -1, Per: time.Second}}, core.CodeInvalid},
		"a rate too great":    {"l", core.LimitAsk{Rate: limit.Rate{Count: math.MaxInt64, Per: time.Second}}, core.CodeInvalid},
		"a negative cost":     {"l", core.LimitAsk{Rate: rate, Cost: -1}, core.CodeInvalid},
		"a wait too long":     {"l", core.LimitAsk{Rate: rate, Cost: 1, Wait: math.MaxInt64}, core.CodeInvalid},
		"a long way ahead":    {"l", core.LimitAsk{Rate: rate, Cost: 1, Ahead: math.MaxInt64}, core.CodeInvalid},
		"a negative wait":     {"l", core.LimitAsk{Rate: rate, Cost: 1, Wait: -1}, core.CodeInvalid},
		"a bad reservation":   {"l", core.LimitAsk{Rate: rate, Op: core.LimitSettle, Reservation: limit.Reservation{Given: -1}}, core.CodeInvalid},
		"a long key":          {"l", core.LimitAsk{Rate: rate, Cost: 1, Key: strings.Repeat("k", 513)}, core.CodeInvalid},
		"a key that is bytes": {"l", core.LimitAsk{Rate: rate, Cost: 1, Key: "\xff"}, core.CodeInvalid},
		"no name":             {"", core.LimitAsk{Rate: rate, Cost: 1}, core.CodeInvalid},
		"another kind":        {"m", core.LimitAsk{Rate: rate, Cost: 1}, core.CodeConflict},
		"a calendar, no date": {"l", core.LimitAsk{Rate: limit.Rate{Count: 1, Every: limit.Day, Algorithm: limit.CalendarWindow}, Cost: 1}, core.CodeUnsupported},
	} {
		if text := r.refuses(t, id, c.name, c.ask, c.code); text == "" {
			t.Errorf("%s is refused without a word", what)
		}
		if _, ok := r.m.Inspect("", "l"); ok {
			t.Fatalf("%s has made a limiter", what)
		}
	}
	r.must(t, id, core.Command{Op: core.OpLimit, Name: "l"}, core.CodeInvalid)
}

// A reservation that nobody was given, as great as it can be, does not stop a machine.
func TestLimiter_MadeUpReservations(t *testing.T) {
	r := newRig(core.Config{})
	id := r.open(1, time.Hour)
	rate := limit.Rate{Count: limit.MaxCount, Per: limit.MinPer, Burst: limit.MaxCount}
	v := r.limit(t, id, "l", core.LimitAsk{Rate: rate, Cost: 1}).Reservation
	v.Cost, v.Until = limit.MaxCount, math.MaxInt64
	r.now = 1
	for _, op := range []core.LimitOp{core.LimitTake, core.LimitReturn, core.LimitSettle} {
		r.limit(t, id, "l", core.LimitAsk{Op: op, Rate: rate, Cost: 5, Reservation: v})
	}
}

// A key that is as if it had never been used is dropped when its time has come, a
// budget of them in an entry; those that begin with less than their burst stay.
func TestLimiter_UnusedKeysAreDropped(t *testing.T) {
	const n, budget = 3000, 500
	r := newRig(core.Config{Budget: budget})
	id := r.open(1, 24*time.Hour)
	for i := range n {
		r.limit(t, id, "l", core.LimitAsk{Key: fmt.Sprint(i), Rate: perSecond(2), Cost: 1})
	}
	r.limit(t, id, "slow", core.LimitAsk{Key: "k", Rate: limit.Rate{Count: 2, Per: time.Second, Initial: 1}, Cost: 1})
	if kept, all := core.LimitKeys(r.m, "default"); kept != n+1 || all != n+1 {
		t.Fatalf("%d keys are remembered and %d recorded of %d", kept, all, n+1)
	}
	r.now = int64(time.Second)
	for left := n - budget; left >= 0; left -= budget {
		r.apply(core.Entry{Now: r.now})
		if kept, all := core.LimitKeys(r.m, "default"); kept != left+1 || all != left+1 {
			t.Fatalf("%d keys are remembered and %d recorded, not %d", kept, all, left+1)
		}
		r.m = r.restored(t)
	}
	if at, _ := r.m.Due(); at <= r.now {
		t.Errorf("something is still due")
	}
}

// A new rate and a delete leave all keys at once, however many there are, and the
// records go a budget in an entry; what is asked meanwhile knows nothing of them.
func TestLimiter_KeysAreLeft(t *testing.T) {
	const n, budget = 3000, 500
	leave := map[string]core.Command{
		"rate":   {Op: core.OpLimit, Name: "l", Ask: &core.LimitAsk{Op: core.LimitSetRate, Rate: perSecond(5)}},
		"delete": {Op: core.OpDelete, Name: "l", Kind: core.Limiter},
	}
	for what, c := range leave {
		t.Run(what, func(t *testing.T) {
			r := newRig(core.Config{Budget: budget})
			id := r.open(1, 24*time.Hour)
			for i := range n {
				r.limit(t, id, "l", core.LimitAsk{Key: fmt.Sprint(i), Rate: limit.Rate{Count: 1, Per: time.Hour}, Cost: 1})
			}
			r.must(t, id, c, core.CodeOK)
			if kept, _ := core.LimitKeys(r.m, "default"); kept != n-budget {
				t.Fatalf("after one entry %d keys are left of %d, with a budget of %d", kept, n, budget)
			}
			if a := r.limit(t, id, "l", core.LimitAsk{Key: "7", Rate: perSecond(5), Cost: 5}); !a.Decision.Allowed {
				t.Fatalf("a key of before counts: %+v", a.Decision)
			}
			r.m = r.restored(t)
			if entries := r.drained(); entries < n/budget-2 {
				t.Errorf("%d entries have dropped %d keys", entries, n)
			}
			if kept, all := core.LimitKeys(r.m, "default"); kept != 1 || all != 1 {
				t.Errorf("%d keys are remembered and %d recorded, not 1", kept, all)
			}
		})
	}
}

// A full quota refuses new keys and says how it is raised; keys that are known, other
// names and other namespaces go on, nothing is half made, and keys that need not be
// remembered any more make room at once.
func TestLimiter_Quota(t *testing.T) {
	r := newRig(core.Config{})
	id := r.open(1, time.Hour)
	other := sessionID(2)
	r.must(t, other, core.Command{Op: core.OpOpen, TTL: int64(time.Hour), Namespace: "other"}, core.CodeOK)
	r.seqs[other] = 1
	r.apply(core.Entry{Kind: core.EntryQuota, Quota: core.Quota{LimitKeys: 2}})
	if q := r.m.Quota(); q.LimitKeys != 2 {
		t.Fatalf("the quota is %+v", q)
	}
	take := func(key string) core.LimitAsk { return core.LimitAsk{Key: key, Rate: perSecond(2), Cost: 1} }
	r.limit(t, id, "l", take("a"))
	r.limit(t, id, "l", take("b"))
	r.m = r.restored(t)
	if text := r.refuses(t, id, "l", take("c"), core.CodeExhausted); !strings.Contains(text, "--max-limit-keys") {
		t.Errorf("the refusal does not tell how to raise the quota: %s", text)
	}
	r.refuses(t, id, "new", take("a"), core.CodeExhausted)
	if _, ok := r.m.Inspect("", "new"); ok {
		t.Error("a request that was refused has made a limiter")
	}
	r.limit(t, id, "l", take("a"))
	r.limit(t, id, "l", core.LimitAsk{Op: core.LimitPeek, Key: "c", Cost: 1})
	r.limit(t, other, "l", take("c"))
	r.must(t, id, core.Command{Op: core.OpCount, Name: "n", Count: core.CountAdd, A: 1}, core.CodeOK)
	r.now = int64(500 * time.Millisecond) // b is as if never used, a is not
	r.limit(t, id, "l", take("c"))
	r.refuses(t, id, "l", take("d"), core.CodeExhausted)
	r.apply(core.Entry{Kind: core.EntryQuota, Quota: core.Quota{LimitKeys: 3}})
	r.limit(t, id, "l", take("d"))
}

// A quota of a version that does not know this one leaves it as it is.
func TestLimiter_QuotaOfBefore(t *testing.T) {
	r := newRig(core.Config{})
	r.apply(core.Entry{Kind: core.EntryQuota, Quota: core.Quota{LimitKeys: 2}})
	r.apply(core.Entry{Kind: core.EntryQuota, Version: 2, Quota: core.Quota{LimitKeys: 9, Keys: 7}})
	if q := r.m.Quota(); q.LimitKeys != 2 || q.Keys != 7 {
		t.Errorf("the quota is %+v", q)
	}
}

// A calendar goes by the date that entries tell, and by cluster time in between.
func TestLimiter_Calendar(t *testing.T) {
	r := newRig(core.Config{})
	id := r.open(1, 24*time.Hour)
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r.now = int64(time.Hour)
	r.apply(core.Entry{Now: r.now, Seconds: noon.Unix()})
	r.now += int64(11 * time.Hour)
	r.m = r.restored(t)
	ask := core.LimitAsk{Key: "k", Cost: 1, Rate: limit.Rate{Count: 1, Every: limit.Day, Algorithm: limit.CalendarWindow}}
	a := r.limit(t, id, "l", ask)
	if !a.Decision.Allowed || a.Decision.ResetAfter != time.Hour || a.Now != noon.Add(11*time.Hour).UnixNano() {
		t.Fatalf("at 23:00: %+v", a)
	}
	r.now += int64(time.Hour - 1)
	if a := r.limit(t, id, "l", ask); a.Decision.Allowed {
		t.Errorf("a second one on the same day is allowed: %+v", a)
	}
	r.now++
	if kept, _ := core.LimitKeys(r.m, "default"); kept != 1 {
		t.Fatalf("%d keys are remembered", kept)
	}
	r.apply(core.Entry{Now: r.now})
	if kept, _ := core.LimitKeys(r.m, "default"); kept != 0 {
		t.Errorf("on the next day %d keys are remembered", kept)
	}
	if a := r.limit(t, id, "l", ask); !a.Decision.Allowed {
		t.Errorf("on the next day it is refused: %+v", a)
	}
}

// A machine without a clock of its own begins in 1970: what it keeps can be read.
func TestLimiter_CalendarOf1970(t *testing.T) {
	r := newRig(core.Config{})
	id := r.open(1, 24*time.Hour)
	r.apply(core.Entry{Now: r.now, Seconds: 600})
	rate := limit.Rate{Count: 1, Every: limit.Month, Offset: time.Hour, Algorithm: limit.CalendarWindow}
	if a := r.limit(t, id, "l", core.LimitAsk{Key: "k", Cost: 1, Rate: rate}); !a.Decision.Allowed {
		t.Fatalf("%+v", a)
	}
	r.m = r.restored(t)
	if a := r.limit(t, id, "l", core.LimitAsk{Key: "k", Cost: 1, Rate: rate}); a.Decision.Allowed {
		t.Errorf("the month was forgotten: %+v", a)
	}
	for unix, want := range map[int64]int64{-1: 0, 7: 7, 1 << 62: 1 << 33} {
		if got := core.Seconds(unix); got != want {
			t.Errorf("the time %d is %d in an entry, want %d", unix, got, want)
		}
	}
}

// Limiters are of version 3: an entry of before has none.
func TestLimiter_Version(t *testing.T) {
	for what, c := range map[string]core.Command{
		"an ask":                  {Op: core.OpLimit, Name: "l", Ask: &core.LimitAsk{Cost: 1, Rate: perSecond(1)}},
		"an ask of another op":    {Op: core.OpCount, Name: "l", Ask: &core.LimitAsk{Cost: 1, Rate: perSecond(1)}},
		"the delete of a limiter": {Op: core.OpDelete, Name: "l", Kind: core.Limiter},
	} {
		f := core.AppendFrame(nil, &core.Frame{Session: sessionID(1), Commands: []core.Command{c}})
		if err := core.New(core.Config{}).Apply(core.AppendEntry(nil, &core.Entry{Version: 2, Frames: [][]byte{f}}), nil); err == nil {
			t.Errorf("%s stands in an entry of version 2", what)
		}
		if err := core.New(core.Config{}).Apply(core.AppendEntry(nil, &core.Entry{Version: 3, Frames: [][]byte{f}}), nil); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestLimiter_LeavesNoRoom: many keys that were used and left leave the machine as small
// as it was. The whole, a million, is BenchmarkLimiterLeft.
func TestLimiter_LeavesNoRoom(t *testing.T) {
	r := newRig(core.Config{})
	id := r.open(1, 24*time.Hour)
	before, with, after := r.useAndLeave(t, id, 50_000)
	if with < before+50_000*100 {
		t.Errorf("50,000 keys take %d bytes: they are not there", with-before)
	}
	if room := after - before; room > (with-before)/10 {
		t.Errorf("50,000 keys take %d bytes, and %d are left when they are gone", with-before, room)
	}
}

// useAndLeave uses n keys and lets them be as if never used. It returns how many bytes
// of the heap are in use before, with them, and after.
func (r *rig) useAndLeave(tb testing.TB, id core.SessionID, n int) (before, with, after int64) {
	ask := core.LimitAsk{Rate: perSecond(1), Cost: 1}
	use := func(key string) {
		ask.Key = key
		if res := r.do(id, core.Command{Op: core.OpLimit, Name: "l", Ask: &ask}); res.Code != core.CodeOK {
			tb.Fatal(res.Text)
		}
	}
	use("first")
	before = heapInUse()
	for i := range n {
		use(fmt.Sprint("address-", i))
	}
	with = heapInUse()
	r.now += int64(2 * time.Second)
	r.drained()
	if kept, records := core.LimitKeys(r.m, "default"); kept != 0 || records != 0 {
		tb.Fatalf("%d keys are remembered and %d recorded", kept, records)
	}
	return before, with, heapInUse()
}

func heapInUse() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// BenchmarkLimiterLeft uses a million keys and leaves them: bytes of a key, and what is
// left of all of them.
func BenchmarkLimiterLeft(b *testing.B) {
	const n = 1_000_000
	for b.Loop() {
		r := newRig(core.Config{})
		id := r.open(1, 24*time.Hour)
		before, with, after := r.useAndLeave(b, id, n)
		b.ReportMetric(float64(with-before)/n, "B/key")
		b.ReportMetric(float64(after-before)/float64(with-before), "left/used")
	}
}

// BenchmarkLimiterTake asks one key of many, an entry each.
func BenchmarkLimiterTake(b *testing.B) {
	r := newRig(core.Config{})
	id := r.open(1, 24*time.Hour)
	ask := core.LimitAsk{Rate: perSecond(1_000_000), Cost: 1}
	b.ReportAllocs()
	for b.Loop() {
		r.now += 1000
		r.do(id, core.Command{Op: core.OpLimit, Name: "l", Ask: &ask})
	}
}

// What was taken before a new rate, a delete or a reset gives nothing back: that would be
// what others have taken since. More than was taken is charged.
func TestLimiter_EarlierRate(t *testing.T) {
	rate := limit.Rate{Count: 5, Per: time.Hour}
	for what, change := range map[string]core.Command{
		"rate":   {Op: core.OpLimit, Name: "l", Ask: &core.LimitAsk{Op: core.LimitSetRate, Rate: rate}},
		"delete": {Op: core.OpDelete, Name: "l", Kind: core.Limiter},
		"reset":  {Op: core.OpLimit, Name: "l", Ask: &core.LimitAsk{Op: core.LimitReset, Key: "k"}},
	} {
		r := newRig(core.Config{})
		id := r.open(1, time.Hour)
		take := core.LimitAsk{Key: "k", Rate: rate, Cost: 4}
		old := r.limit(t, id, "l", take).Reservation
		r.must(t, id, change, core.CodeOK)
		if a := r.limit(t, id, "l", take); !a.Decision.Allowed {
			t.Fatalf("%s: 4 of 5 are refused: %+v", what, a.Decision)
		}
		r.m = r.restored(t)
		for _, op := range []core.LimitOp{core.LimitSettle, core.LimitReturn} {
			cost := map[core.LimitOp]int64{core.LimitReturn: 4}[op]
			r.limit(t, id, "l", core.LimitAsk{Op: op, Key: "k", Rate: rate, Cost: cost, Reservation: old})
			if a := r.limit(t, id, "l", core.LimitAsk{Op: core.LimitPeek, Key: "k"}); a.Decision.Remaining != 1 {
				t.Errorf("%s: after operation %d on what was taken before, %d are there, not 1", what, op, a.Decision.Remaining)
			}
		}
	}
}
