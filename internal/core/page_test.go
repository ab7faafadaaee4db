package core_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// rangeAll reads a range page by page, with limits that change, and does between
// before each further page.
func rangeAll(t *testing.T, m *core.Machine, op core.KeyOp, limit func() uint64, between func()) (names []string) {
	for op.Kind, op.Prefix = core.KeyGet, true; ; between() {
		op.Limit = limit()
		r := m.Read("", &core.Command{Op: core.OpTxn, Then: []core.KeyOp{op}})
		if r.Code != core.CodeOK {
			t.Fatalf("a range is refused: %s", r.Text)
		}
		for _, k := range r.Keys[0].Keys {
			names = append(names, k.Name)
		}
		if n := len(r.Keys[0].Keys); op.Limit > 0 && n > int(op.Limit) || n == 0 && r.Keys[0].More {
			t.Fatalf("a page of at most %d keys has %d, more: %v", op.Limit, n, r.Keys[0].More)
		}
		if !r.Keys[0].More {
			return names
		}
		op.After = names[len(names)-1]
	}
}

// Pages of a range give every key that is there all the time exactly once, in
// order, up and down, while others come and go, with values of every size.
func TestRangePages(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	r := newRig(core.Config{})
	id := r.open(1, 300e9)
	put := func(name string, size int) {
		op := core.KeyOp{Kind: core.KeyPut, Key: name, Value: make([]byte, size)}
		if res := r.do(id, core.Command{Op: core.OpTxn, Then: []core.KeyOp{op}}); res.Code != core.CodeOK {
			t.Fatal(res.Text)
		}
	}
	drop := func(name string) {
		r.do(id, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyDelete, Key: name}}})
	}
	var stay []string
	for i := range 12_000 {
		name := fmt.Sprintf("k/%x", rnd.Uint64())
		put(name, []int{0, 10, 100}[rnd.IntN(3)])
		stay = append(stay, name)
		if i%100 == 0 {
			put(name, 60_000) // near the greatest
		}
	}
	put("j", 0)
	put("l", 0)
	slices.Sort(stay)
	others := 0
	churn := func() {
		for range 20 {
			drop(fmt.Sprintf("k/%x~%d", rnd.Uint64()&0xfff, others-rnd.IntN(40)))
			put(fmt.Sprintf("k/%x~%d", rnd.Uint64()&0xfff, others), 10)
			others++
		}
		if len(stay)%7 == 0 {
			at := rnd.IntN(len(stay))
			drop(stay[at])
			put(stay[at], 10) // made anew: still there
		}
	}
	kept := func(got []string) []string {
		return slices.DeleteFunc(slices.Clone(got), func(n string) bool { return strings.Contains(n, "~") })
	}
	unlimited := func() uint64 { return 0 }
	limited := func() uint64 { return 1 + rnd.Uint64N(2000) }
	for _, limit := range []func() uint64{unlimited, limited} {
		up := rangeAll(t, r.m, core.KeyOp{Key: "k/"}, limit, churn)
		if !slices.IsSorted(up) || !slices.Equal(kept(up), stay) {
			t.Errorf("of %d keys %d are told, in order: %v", len(stay), len(kept(up)), slices.IsSorted(up))
		}
		down := rangeAll(t, r.m, core.KeyOp{Key: "k/", Desc: true}, limit, churn)
		slices.Reverse(down)
		if !slices.IsSorted(down) || !slices.Equal(kept(down), stay) {
			t.Errorf("of %d keys %d are told downwards, in order: %v", len(stay), len(kept(down)), slices.IsSorted(down))
		}
		bare := rangeAll(t, r.m, core.KeyOp{Key: "", KeysOnly: true}, limit, churn)
		if got := kept(bare); len(got) != len(stay)+2 || got[0] != "j" || got[len(got)-1] != "l" {
			t.Errorf("of %d keys %d are told without values", len(stay)+2, len(got))
		}
	}
}

// inspectAll reads a name page by page.
func inspectAll(m *core.Machine, ns, name string, most func() int, between func()) (whole core.ResourceInfo, ok bool) {
	for after := (core.Cursor{}); ; between() {
		max := most()
		i, there := m.InspectPage(ns, name, after, max)
		if !there {
			return whole, false
		}
		if n := len(i.Holders) + len(i.Waiters); max > 0 && n > max || n > core.MaxClaims || n == 0 && i.Next != (core.Cursor{}) {
			panic(fmt.Sprintf("a page of at most %d claims has %d", max, n))
		}
		next := i.Next
		i.Holders, i.Waiters, i.Next = append(whole.Holders, i.Holders...), append(whole.Waiters, i.Waiters...), core.Cursor{}
		if whole = i; next == (core.Cursor{}) {
			return whole, true
		}
		parsed, err := core.ParseCursor(next.String(), false)
		if err != nil || parsed != next {
			panic(fmt.Sprintf("%v is read as %v, %v", next, parsed, err))
		}
		after = next
	}
}

// sessionAll reads a session page by page.
func sessionAll(m *core.Machine, id core.SessionID, most func() int, between func()) (whole core.SessionInfo, ok bool) {
	for after := (core.Cursor{}); ; between() {
		i, there := m.SessionPage(id, after, most())
		if !there {
			return whole, false
		}
		next := i.Next
		if next != (core.Cursor{}) && len(i.Claims)+len(i.Waits)+len(i.Keys) == 0 {
			panic("an empty page")
		}
		i.Claims, i.Waits = append(whole.Claims, i.Claims...), append(whole.Waits, i.Waits...)
		i.Keys, i.Next = append(whole.Keys, i.Keys...), core.Cursor{}
		if whole = i; next == (core.Cursor{}) {
			return whole, true
		}
		parsed, err := core.ParseCursor(next.String(), true)
		if err != nil || parsed != next {
			panic(fmt.Sprintf("%v is read as %v, %v", next, parsed, err))
		}
		after = next
	}
}

// The keys of a session are told, each once, also where its claims fill a page, or the
// last of several.
func TestKeysBehindAFullPage(t *testing.T) {
	r := newRig(core.Config{})
	id := r.open(1, 300e9)
	for _, name := range []string{"a", "b", "c", "d"} {
		r.must(t, id, core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: name, Kind: core.Mutex}}}, core.CodeOK)
		r.must(t, id, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: name, Session: id}}}, core.CodeOK)
	}
	for most := 1; most < 10; most++ {
		pages := 0
		between := func() {
			if pages++; pages > 8 {
				t.Fatalf("pages of %d do not end", most)
			}
		}
		s, _ := sessionAll(r.m, id, func() int { return most }, between)
		if len(s.Claims) != 4 || !slices.Equal(s.Keys, []string{"a", "b", "c", "d"}) {
			t.Errorf("pages of %d tell %d claims and the keys %q", most, len(s.Claims), s.Keys)
		}
	}
}

// listAll reads the names of a namespace page by page.
func listAll(m *core.Machine, ns string, most func() int) (names []string) {
	for after := ""; ; {
		list, next := m.List(ns, "", after, most())
		for i := range list {
			names = append(names, list[i].Name)
		}
		if next == "" {
			return names
		}
		after = next
	}
}

// samePages compares what pages of one to three tell to what pages of all tell.
func samePages(m *core.Machine, namespaces ...string) error {
	n, all, still := 0, func() int { return 0 }, func() {}
	few := func() int { n++; return 1 + n%3 }
	for _, ns := range namespaces {
		names := listAll(m, ns, all)
		if got := listAll(m, ns, few); !slices.Equal(got, names) {
			return fmt.Errorf("the pages of %s have %q, want %q", ns, got, names)
		}
		for _, name := range names {
			got, _ := inspectAll(m, ns, name, few, still)
			if want, ok := inspectAll(m, ns, name, all, still); !ok || !reflect.DeepEqual(got, want) {
				return fmt.Errorf("the pages of %s tell\n%+v, want\n%+v", name, got, want)
			}
		}
	}
	return nil
}

// Many holders, waiters (in several names, upgrades), names and things of a
// session: pages tell each that is there all the time once, in order, while others
// come and go; a page has a bounded size whatever is asked for.
func TestClaimPages(t *testing.T) {
	const n = 5000
	r := newRig(core.Config{})
	id := r.open(1, 300e9)
	other := r.open(2, 300e9)
	share := func(id core.SessionID) uint64 {
		return r.must(t, id, core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "s", Kind: core.Semaphore, Mode: core.Shared, Weight: 1, Limit: 1 << 40}}}, core.CodeOK).Seq
	}
	var held, guests []uint64 // tokens of those that stay, numbers of those that go
	for range n {
		share(id)
		held = append(held, r.m.Revision())
		if len(held)%3 == 0 {
			guests = append(guests, share(other))
		}
	}
	churn := func() {
		for range 30 {
			r.release(other, guests[0])
			guests = append(guests[1:], share(other))
		}
	}
	lots := func() int { return 1 << 30 }
	i, _ := inspectAll(r.m, "", "s", lots, churn)
	var tokens []uint64
	for _, c := range i.Holders {
		if c.Session == id {
			tokens = append(tokens, c.Token)
		}
	}
	if !slices.Equal(tokens, held) {
		t.Errorf("of %d holders that stay %d are told", len(held), len(tokens))
	}
	if i.Holding != n+len(guests) || i.Waiting != 0 {
		t.Errorf("%d are said to hold and %d to wait", i.Holding, i.Waiting)
	}

	s, _ := sessionAll(r.m, id, lots, churn)
	if len(s.Claims) != n || s.Claims[n-1].Token != held[n-1] {
		t.Errorf("of %d holds of a session %d are told", n, len(s.Claims))
	}
	one, _ := r.m.SessionPage(id, core.Cursor{}, 1)
	if len(one.Claims) != 1 || one.Next == (core.Cursor{}) {
		t.Errorf("a page of one has %d", len(one.Claims))
	}
}

// Waiters of all sorts are told in their order with their places.
func TestWaiterPages(t *testing.T) {
	const n = 3000
	r := newRig(core.Config{})
	id := r.open(1, 300e9)
	base := r.must(t, id, core.Command{Op: core.OpAcquire, Wants: reads("m")}, core.CodeOK)
	r.must(t, id, core.Command{Op: core.OpAcquire, Wants: reads("m")}, core.CodeOK)
	r.must(t, id, core.Command{Op: core.OpAcquire, Wants: mutexes("z")}, core.CodeOK)
	var waits []uint64
	for i := range n {
		wants := []core.Want{{Name: "m", Kind: core.RWMutex}}
		if i%5 == 0 { // stands at a, has m only in mind
			wants = append(mutexes("a"), wants...)
		}
		if i%7 == 0 {
			wants = append(wants, mutexes("z")...)
		}
		waits = append(waits, r.must(t, id, core.Command{Op: core.OpAcquire, Wants: wants}, core.CodeQueued).Seq)
	}
	up := r.must(t, id, core.Command{Op: core.OpUpgrade, Target: base.Seq}, core.CodeQueued).Seq
	for _, most := range []int{0, 1, 7, 999} {
		i, _ := inspectAll(r.m, "", "m", func() int { return most }, func() {})
		if i.Waiting != n+1 || len(i.Waiters) != n+1 || len(i.Holders) != 2 {
			t.Fatalf("of %d waiters %d are told, %d said; of 2 holders %d", n+1, len(i.Waiters), i.Waiting, len(i.Holders))
		}
		for at, w := range i.Waiters {
			if want := append([]uint64{up}, waits...)[at]; w.Seq != want || w.Position != at+1 || (at > 0 && w.BeforeSeq != i.Waiters[at-1].Seq) {
				t.Fatalf("waiter %d is told as %d at place %d behind %d; it is %d", at+1, w.Seq, w.Position, w.BeforeSeq, want)
			}
		}
	}
	s, _ := sessionAll(r.m, id, func() int { return 100 }, func() {})
	names := 0
	for i := range n {
		names += 1 + btoi(i%5 == 0) + btoi(i%7 == 0)
	}
	if len(s.Waits) != names+1 || len(s.Claims) != 3 {
		t.Errorf("of %d waits and 3 holds of a session %d and %d are told", names+1, len(s.Waits), len(s.Claims))
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A List passes over many free names in steps, and tells a name with many claims
// by the first of them.
func TestListPages(t *testing.T) {
	const n = 25_000
	r := newRig(core.Config{Idle: n})
	id := r.open(1, 300e9)
	for i := range n {
		claim := r.acquire(id, fmt.Sprintf("n/%05d", i))
		if i%5000 != 4999 {
			r.release(id, claim)
		}
	}
	for range 150 {
		r.must(t, id, core.Command{Op: core.OpAcquire, Wants: reads("n/x")}, core.CodeOK)
	}
	var names []string
	steps := 0
	for after := ""; ; steps++ {
		list, next := r.m.List("", "n/", after, 0)
		for _, i := range list {
			names = append(names, i.Name)
			if i.Name == "n/x" && (len(i.Holders) != 100 || i.Holding != 150 || i.Next == (core.Cursor{})) {
				t.Errorf("of 150 readers %d are told and %d said; more: %v", len(i.Holders), i.Holding, i.Next)
			}
		}
		if next == "" {
			break
		}
		after = next
	}
	if want := []string{"n/04999", "n/09999", "n/14999", "n/19999", "n/24999", "n/x"}; !slices.Equal(names, want) || steps < 2 {
		t.Errorf("in %d steps %q are told, want %q", steps, names, want)
	}
	for i := range 3000 {
		r.acquire(id, fmt.Sprintf("o/%05d", i))
	}
	if list, next := r.m.List("", "o/", "", 1<<30); len(list) != core.MaxNames || next != "o/00999" {
		t.Errorf("a page of all names has %d, then %q", len(list), next)
	}
	for i := range 300 {
		big := core.Command{Op: core.OpAcquire, Value: make([]byte, 50_000), Wants: []core.Want{{Name: fmt.Sprintf("p/%03d", i), Kind: core.Election}}}
		r.must(t, id, big, core.CodeOK)
	}
	if list, next := r.m.List("", "p/", "", 0); len(list) < 15 || len(list) > 25 || next == "" {
		t.Errorf("a page of names of 50 kB each has %d, then %q", len(list), next)
	}
}

// A place that nothing has named is refused.
func TestBadCursors(t *testing.T) {
	for _, s := range []string{"x", "h", "hx", "h-1", "w1x", "c1", "k", "99999999999999999999999"} {
		if _, err := core.ParseCursor(s, false); err == nil {
			t.Errorf("%q is taken for a place among the claims of a name", s)
		}
	}
	for _, s := range []string{"h1", "w1", "c", "x"} {
		if _, err := core.ParseCursor(s, true); err == nil {
			t.Errorf("%q is taken for a place in a session", s)
		}
	}
}

// What a read limited to ten makes does not depend on how much there is. (Time is
// for the benchmark: this counts bytes.)
func TestLimitedReadsMakeNoMore(t *testing.T) {
	limited := map[string]core.KeyOp{
		"up":     {Prefix: true, Limit: 10},
		"down":   {Prefix: true, Limit: 10, Desc: true},
		"middle": {Prefix: true, Limit: 10, After: "k/5"},
	}
	made := map[string][]uint64{}
	for _, n := range []int{1000, 100_000} {
		r := newRig(core.Config{})
		id := r.open(1, 300e9)
		for i := range n {
			r.do(id, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: fmt.Sprintf("k/%06d", i*(1_000_000/n))}}})
			r.must(t, id, core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "s", Kind: core.Semaphore, Mode: core.Shared, Weight: 1, Limit: 1 << 40}}}, core.CodeOK)
			if i%10 == 0 {
				r.acquire(id, lockName(i))
			}
		}
		for name, op := range limited {
			made[name] = append(made[name], bytesOf(func() { r.m.Read("", &core.Command{Op: core.OpTxn, Then: []core.KeyOp{op}}) }))
		}
		made["list"] = append(made["list"], bytesOf(func() { r.m.List("", "bench", "", 10) }))
		made["inspect"] = append(made["inspect"], bytesOf(func() { r.m.InspectPage("", "s", core.Cursor{}, 10) }))
		made["session"] = append(made["session"], bytesOf(func() { r.m.SessionPage(id, core.Cursor{}, 10) }))
	}
	for name, b := range made {
		if b[1] > 2*b[0] {
			t.Errorf("%s: ten of 100,000 make %d bytes, of 1,000 %d", name, b[1], b[0])
		}
	}
}

// bytesOf is what a call of f allocates.
func bytesOf(f func()) uint64 {
	var before, after runtime.MemStats
	f()
	runtime.ReadMemStats(&before)
	for range 100 {
		f()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / 100
}

// TestInspectAfterYield: a claim on several names that has to give one back keeps its
// place among the waiters of the others, on every page.
func TestInspectAfterYield(t *testing.T) {
	r := newRig(core.Config{})
	a, b := r.open(1, time.Hour), r.open(2, time.Hour)
	r.acquire(a, "q")
	r.acquire(a, "z")
	read := core.Want{Name: "r", Kind: core.RWMutex, Mode: core.Shared}
	base := r.do(a, core.Command{Op: core.OpAcquire, Wants: []core.Want{read}}).Seq
	first := r.do(b, core.Command{Op: core.OpAcquire, Wants: []core.Want{read, {Name: "z", Kind: core.Mutex}}}).Seq
	second := r.do(b, core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "q", Kind: core.Mutex}, {Name: "z", Kind: core.Mutex}}}).Seq
	if res := r.do(a, core.Command{Op: core.OpUpgrade, Target: base}); res.Code != core.CodeOK {
		t.Fatalf("the upgrade: code %d %s", res.Code, res.Text)
	}
	for limit := range 3 {
		got, _ := inspectAll(r.m, "", "z", func() int { return limit }, func() {})
		if w := got.Waiters; len(w) != 2 || w[0].Seq != first || w[1].Seq != second {
			t.Errorf("in pages of %d the waiters are %+v, want %d and %d", limit, w, first, second)
		}
	}
}
