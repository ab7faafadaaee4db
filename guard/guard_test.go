package guard_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/guard"
)

var whole = flag.Bool("guard.whole", false, "all trees of four leaves, not a share of them")

// leaf is a leaf of its own, and a fact that gives it the outcome.
func leaf(i int, o guard.Outcome, in guard.Inputs) guard.Condition {
	c := guard.FileExists(fmt.Sprint(i))
	switch o {
	case guard.Passed, guard.Failed:
		in[c.Input()] = guard.Fact{Is: o == guard.Passed}
	case guard.Error:
		in[c.Input()] = guard.Fact{Err: "broken"}
	}
	return c
}

// truth is the table, written down once more, with numbers: false 0, unknown 1, true
// 2; All is the least, Any the greatest, Not the difference to 2.
func truth(c guard.Condition, in guard.Inputs) int {
	switch c.Kind {
	case guard.KindAll:
		least := 2
		for _, p := range c.Of {
			least = min(least, truth(p, in))
		}
		return least
	case guard.KindAny:
		most := 0
		for _, p := range c.Of {
			most = max(most, truth(p, in))
		}
		return most
	case guard.KindNot:
		return 2 - truth(c.Of[0], in)
	}
	f, ok := in[c.Input()]
	switch {
	case !ok || f.Err != "":
		return 1
	case f.Is:
		return 2
	}
	return 0
}

// trees are all shapes with the leaves given, every part with and without Not: a tree is a leaf, or All or
// Any of two and more trees. Its leaves stay in order; what another order of outcomes gives comes with the
// outcomes.
func trees(leaves []guard.Condition) (all []guard.Condition) {
	if len(leaves) == 1 {
		return []guard.Condition{leaves[0], guard.Not(leaves[0])}
	}
	for _, p := range cuts(leaves) {
		if len(p) > 1 {
			all = append(all, guard.All(p...), guard.Any(p...), guard.Not(guard.All(p...)), guard.Not(guard.Any(p...)))
		}
	}
	return all
}

// cuts are all ways to cut the leaves into parts, each part a tree; the whole as one part is not among them.
func cuts(leaves []guard.Condition) (all [][]guard.Condition) {
	for n := 1; n < len(leaves); n++ {
		rest := cuts(leaves[n:])
		for _, tree := range trees(leaves[n:]) {
			rest = append(rest, []guard.Condition{tree})
		}
		for _, first := range trees(leaves[:n]) {
			for _, r := range rest {
				all = append(all, append([]guard.Condition{first}, r...))
			}
		}
	}
	return all
}

// orders calls f with the tree in all orders of its parts, of the parts of those, and so on.
func orders(c guard.Condition, f func(guard.Condition)) {
	if len(c.Of) == 0 {
		f(c)
		return
	}
	var place func(of, rest []guard.Condition)
	place = func(of, rest []guard.Condition) {
		if len(rest) == 0 {
			c.Of = of
			f(c)
			return
		}
		for i := range rest {
			others := slices.Delete(slices.Clone(rest), i, i+1)
			orders(rest[i], func(part guard.Condition) { place(append(of[:len(of):len(of)], part), others) })
		}
	}
	place(nil, c.Of)
}

// All trees of up to four leaves, over all outcomes of the leaves: the result is that
// of the truth table, the order of parts changes nothing, Not(Not(x)) is x, and what
// did not pass names a leaf that stands in the way. The seed: "Composite guards (All/Any/Not) work correctly", "Each
// condition type, composite guards (All/Any/Not)", "Composite guards (All/Any/Not) work".
func TestTruthTable(t *testing.T) {
	n, m := 0, 0
	for leaves := 1; leaves <= 4; leaves++ {
		list := make([]guard.Condition, leaves)
		for i := range list {
			list[i] = leaf(i, guard.NeedsInput, guard.Inputs{})
		}
		shapes := trees(list)
		turned := make([][]guard.Condition, len(shapes))
		for i, c := range shapes {
			orders(c, func(o guard.Condition) { turned[i] = append(turned[i], o) })
		}
		for code := range 1 << (2 * leaves) {
			if leaves == 4 && code%97 != 0 && !*whole {
				continue
			}
			in := guard.Inputs{}
			for i := range leaves {
				leaf(i, guard.Outcome(code>>(2*i)&3), in)
			}
			for i, c := range shapes {
				judge(t, c, turned[i], in)
				n, m = n+1, m+len(turned[i])
			}
		}
	}
	t.Logf("proof: %d trees with their outcomes, in %d orders", n, m)
}

// judge holds a tree against the truth table, in all its orders. That a result which is not
// passed has a leaf that decides, and no passed one has, is asserted here too: without it a caller
// is told that the guard blocks, and not by what.
func judge(t *testing.T, c guard.Condition, turned []guard.Condition, in guard.Inputs) {
	t.Helper()
	r := c.Evaluate(in)
	want := truth(c, in)
	got := map[guard.Outcome]int{guard.Failed: 0, guard.NeedsInput: 1, guard.Error: 1, guard.Passed: 2}[r.Outcome]
	if got != want {
		t.Fatalf("%+v over %v: %s, want truth %d", c, in, r.Outcome, want)
	}
	twice := guard.Not(guard.Not(c))
	if o := twice.Evaluate(in).Outcome; o != r.Outcome {
		t.Fatalf("%+v: Not(Not()) is %s, not %s", c, o, r.Outcome)
	}
	for i := range turned {
		if o := turned[i].Evaluate(in).Outcome; o != r.Outcome {
			t.Fatalf("%+v: as %+v it is %s, not %s", c, turned[i], o, r.Outcome)
		}
	}
	for _, reason := range c.Explain(in).Reasons {
		if reason.Decides && r.Outcome == guard.Passed {
			t.Fatalf("%+v passed, and %+v stands in the way", c, reason)
		}
		if reason.Decides {
			return
		}
	}
	if r.Outcome == guard.Passed {
		return
	}
	t.Fatalf("%+v: %s names no leaf that stands in the way: %+v", c, r.Outcome, r.Reasons)
}

// What stands in the way is told, and nothing beside a part that passed.
func TestDecides(t *testing.T) {
	yes, no := guard.FileExists("yes"), guard.FileExists("no")
	in := guard.Inputs{{Source: guard.SourceFile, Name: "yes"}: {Is: true}, {Source: guard.SourceFile, Name: "no"}: {}}
	for _, c := range []struct {
		condition guard.Condition
		marks     string
	}{
		{guard.Any(yes, no), "✓·"},
		{guard.Any(no, no), "✗✗"},
		{guard.All(yes, no), "✓✗"},
		{guard.All(guard.Any(yes, no), no), "✓·✗"},
		{guard.Not(guard.All(yes, no)), "·✓"},
		{guard.Not(guard.Any(yes, no)), "✗✓"},
		{guard.All(guard.Not(guard.Any(no, guard.Not(yes))), guard.Not(yes)), "✓✓✗"},
	} {
		got := ""
		for _, r := range c.condition.Explain(in).Reasons {
			got += string([]rune(r.String())[:1])
		}
		if got != c.marks {
			t.Errorf("%+v: %s, want %s", c.condition, got, c.marks)
		}
	}
}

// A holder of a lock that several have holds it, whichever is first.
func TestHeldBy_Several(t *testing.T) {
	in := guard.Inputs{{Source: guard.SourceLock, Name: "docs"}: {Is: true, Text: "ann", Others: []string{"bob"}}}
	for holder, want := range map[string]guard.Outcome{"ann": guard.Passed, "bob": guard.Passed, "eve": guard.Failed} {
		c := guard.LockHeldBy("docs", holder)
		if r := c.Explain(in); r.Outcome != want || !strings.Contains(r.String(), `held by "ann" and 1 more`) {
			t.Errorf("%s: %s", holder, r)
		}
	}
}

// What a window is waited for is told in the same words at every look, until it begins or ends.
func TestWindow_SameWords(t *testing.T) {
	c := guard.During(guard.Window{From: 22 * time.Hour, To: 6 * time.Hour, Offset: -30 * time.Minute})
	at := func(hour, minute int) string {
		now := time.Date(2026, 5, 4, hour, minute, 0, 0, time.UTC)
		return c.Explain(guard.Inputs{{Source: guard.SourceClock}: {Number: now.UnixNano()}}).String()
	}
	if at(8, 0) != at(21, 59) || at(8, 0) == at(23, 0) || at(23, 0) != at(22, 45) {
		t.Errorf("%s\n%s\n%s", at(8, 0), at(21, 59), at(23, 0))
	}
	if got := at(8, 0); !strings.Contains(got, "(outside, until Mon 22:00)") || !strings.Contains(got, "(UTC-00:30)") {
		t.Error(got)
	}
}

// A text from outside is one line of bounded length, without what a terminal obeys.
func TestGot_FromOutside(t *testing.T) {
	c := guard.KeyEquals("k", "x")
	r := c.Explain(guard.Inputs{{Source: guard.SourceKey, Name: "k"}: {Is: true, Text: "\x1b[2J\n" + strings.Repeat("é", 30000)}})
	if got := r.String(); len(got) > 1000 || strings.Contains(got, "\x1b") || strings.Count(got, "\n") != 1 || !utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
}

// Where a missing input and an error meet, the error is told.
func TestErrorWins(t *testing.T) {
	in := guard.Inputs{}
	missing, broken := leaf(0, guard.NeedsInput, in), leaf(1, guard.Error, in)
	for _, c := range []guard.Condition{guard.All(missing, broken), guard.Any(broken, missing), guard.Not(guard.All(broken, missing))} {
		if o := c.Evaluate(in).Outcome; o != guard.Error {
			t.Errorf("%+v: %s", c, o)
		}
	}
}

// The seed: "Each condition type evaluates correctly", "Guard conditions evaluate correctly", "Missing inputs return
// NeedsInput result".
func TestEachKind(t *testing.T) {
	at := func(s string) int64 {
		when, err := time.Parse("2006-01-02 15:04", s)
		if err != nil {
			t.Fatal(err)
		}
		return when.UnixNano()
	}
	missing := leafKinds(t)
	night := guard.During(guard.Window{From: 22 * time.Hour, To: 6 * time.Hour, Days: []time.Weekday{time.Friday}})
	east := guard.During(guard.Window{From: 9 * time.Hour, To: 17 * time.Hour, Offset: 9 * time.Hour})
	for _, tt := range []struct {
		c        guard.Condition
		yes, not guard.Fact
	}{
		{guard.LockFree("l"), guard.Fact{}, guard.Fact{Is: true, Text: "w1"}},
		{guard.LockHeldBy("l", "w1"), guard.Fact{Is: true, Text: "w1"}, guard.Fact{Is: true, Text: "w2"}},
		{guard.LockHeldBy("l", "w1"), guard.Fact{Is: true, Text: "w1"}, guard.Fact{Text: "w1"}},
		{guard.SemaphoreAvailable("s", 2), guard.Fact{Number: 2}, guard.Fact{Number: 1}},
		{guard.SemaphoreAvailable("s", 1), guard.Fact{Unused: true}, guard.Fact{}},
		{guard.Condition{Kind: guard.KindSemaphoreAvailable, Name: "s", Amount: 3, Limit: 3}, guard.Fact{Unused: true}, guard.Fact{Number: 2}},
		{guard.BranchExists("b"), guard.Fact{Is: true}, guard.Fact{}},
		{guard.BranchNotExists("b"), guard.Fact{}, guard.Fact{Is: true}},
		{guard.BranchMerged("b", "main"), guard.Fact{Is: true}, guard.Fact{}},
		{guard.IssuesComplete("milestone:v2"), guard.Fact{Total: 3}, guard.Fact{Number: 1, Total: 3}},
		{guard.IssuesComplete("none match"), guard.Fact{Total: 1}, guard.Fact{}},
		{guard.IssueStatus("7", "closed"), guard.Fact{Text: "closed"}, guard.Fact{Text: "open"}},
		{guard.FileExists("f"), guard.Fact{Is: true}, guard.Fact{}},
		{guard.FileNotExists("f"), guard.Fact{}, guard.Fact{Is: true}},
		{guard.SessionAlive("tmux:build"), guard.Fact{Is: true}, guard.Fact{}},
		{guard.CustomCheck("make ok", "all is well"), guard.Fact{Is: true}, guard.Fact{Text: "exit 1"}},
		{guard.Counter("c", guard.Equal, 3), guard.Fact{Number: 3}, guard.Fact{Number: 4}},
		{guard.Counter("c", guard.NotEqual, 3), guard.Fact{Number: 4}, guard.Fact{Number: 3}},
		{guard.Counter("c", guard.AtLeast, 3), guard.Fact{Number: 3}, guard.Fact{Number: 2}},
		{guard.Counter("c", guard.AtMost, 3), guard.Fact{Number: 3}, guard.Fact{Number: 4}},
		{guard.Leader("e", "w1"), guard.Fact{Is: true, Text: "w1"}, guard.Fact{Is: true, Text: "w2"}},
		{guard.Leader("e", ""), guard.Fact{Is: true, Text: "w2"}, guard.Fact{}},
		{guard.LimitAvailable("api", "k", 5), guard.Fact{Number: 5}, guard.Fact{Number: 4}},
		{guard.KeyExists("k"), guard.Fact{Is: true}, guard.Fact{}},
		{guard.KeyAbsent("k"), guard.Fact{}, guard.Fact{Is: true}},
		{guard.KeyEquals("k", "v"), guard.Fact{Is: true, Text: "v"}, guard.Fact{Is: true, Text: "w"}},
		{guard.KeyEquals("k", "v"), guard.Fact{Is: true, Text: "v"}, guard.Fact{Text: "v"}},
		{night, guard.Fact{Number: at("2026-11-13 23:00")}, guard.Fact{Number: at("2026-11-14 23:00")}},
		{night, guard.Fact{Number: at("2026-11-14 05:59")}, guard.Fact{Number: at("2026-11-14 06:00")}},
		{east, guard.Fact{Number: at("2026-11-14 00:00")}, guard.Fact{Number: at("2026-11-14 08:00")}},
		{east, guard.Fact{Number: at("2026-11-14 07:59")}, guard.Fact{Number: at("2026-11-13 23:59")}},
	} {
		delete(missing, tt.c.Kind)
		if err := tt.c.Check(); err != nil {
			t.Error(err)
		}
		in := tt.c.Input()
		if r := tt.c.Explain(guard.Inputs{in: tt.yes}); r.Outcome != guard.Passed || r.Reasons[0].Want == "" || r.Reasons[0].Got == "" {
			t.Errorf("%+v over %+v: %+v", tt.c, tt.yes, r)
		}
		r := tt.c.Evaluate(guard.Inputs{in: tt.not})
		if r.Outcome != guard.Failed || len(r.Reasons) != 1 || !r.Reasons[0].Decides {
			t.Errorf("%+v over %+v: %+v", tt.c, tt.not, r)
		}
		if o := tt.c.Evaluate(nil).Outcome; o != guard.NeedsInput {
			t.Errorf("%+v without its input: %s", tt.c, o)
		}
		if o := tt.c.Evaluate(guard.Inputs{in: {Err: "timed out"}}).Outcome; o != guard.Error {
			t.Errorf("%+v without its input: %s", tt.c, o)
		}
		if got := tt.c.RequiredInputs(); !reflect.DeepEqual(got, []guard.Input{in}) {
			t.Errorf("%+v requires %v", tt.c, got)
		}
	}
	if len(missing) > 0 {
		t.Errorf("there is no row for the kinds %v", slices.Sorted(maps.Keys(missing)))
	}
}

// leafKinds are the kinds of leaves that condition.go declares.
func leafKinds(t *testing.T) map[guard.Kind]bool {
	t.Helper()
	src, err := os.ReadFile("condition.go")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[guard.Kind]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\tKind\w+ +Kind = "(\w+)"$`).FindAllSubmatch(src, -1) {
		kinds[guard.Kind(m[1])] = true
	}
	for _, composed := range []guard.Kind{guard.KindAll, guard.KindAny, guard.KindNot} {
		if !kinds[composed] {
			t.Fatalf("condition.go declares %v, and not %s", kinds, composed)
		}
		delete(kinds, composed)
	}
	return kinds
}

// TestUnknownKind: a leaf of a kind that nobody knows asks for nothing that could be found out, so
// that it never passes, also if nobody has called Check.
func TestUnknownKind(t *testing.T) {
	c := guard.Condition{Kind: "moon_phase", Name: "full"}
	now := guard.Inputs{{Source: guard.SourceClock}: {Is: true, Number: time.Now().UnixNano()}}
	r := c.Evaluate(now)
	if r.Outcome != guard.NeedsInput || !strings.Contains(r.Reasons[0].Want, "moon_phase") {
		t.Errorf("%s", r)
	}
}

// Of a semaphore that nobody has used yet more than 1 is free only if the limit is known; what would help is said.
func TestSemaphoreUnused(t *testing.T) {
	c := guard.SemaphoreAvailable("s", 2)
	in := guard.Inputs{c.Input(): {Unused: true}}
	for _, c := range []guard.Condition{c, guard.Not(c)} {
		r := c.Evaluate(in)
		if why := r.Reasons[0]; r.Outcome != guard.Error || !strings.Contains(why.Got, "nobody has used it yet, and its first user sets its limit") || !strings.Contains(why.Hint, "name its limit") {
			t.Errorf("%s", r)
		}
	}
}

// What a semaphore or a limiter never has is not said to come with time.
func TestHint_NeverEnough(t *testing.T) {
	for _, tt := range []struct {
		c    guard.Condition
		f    guard.Fact
		want string
	}{
		{guard.LimitAvailable("api", "", 9), guard.Fact{Number: 1, Total: 1}, "it never allows more than 1: lower the cost, or raise its rate"},
		{guard.LimitAvailable("api", "", 9), guard.Fact{Number: 1, Total: 9}, "it refills with time"},
		{guard.LimitAvailable("api", "", 9), guard.Fact{Number: 1}, "it refills with time"},
		{guard.SemaphoreAvailable("s", 9), guard.Fact{Number: 3, Total: 3}, "its limit is 3: so much is never free"},
		{guard.SemaphoreAvailable("s", 3), guard.Fact{Number: 1, Total: 3}, "it is waited for until enough is released"},
	} {
		if r := tt.c.Evaluate(guard.Inputs{tt.c.Input(): tt.f}); r.Outcome != guard.Failed || r.Reasons[0].Hint != tt.want {
			t.Errorf("%+v over %+v: %s", tt.c, tt.f, r)
		}
	}
}

// The seed: "All/Any: collect from all child conditions", "required_inputs() returns correct input types".
func TestRequiredInputs(t *testing.T) {
	c := guard.All(guard.LockFree("b"), guard.Any(guard.LockHeldBy("b", "w"), guard.Not(guard.FileExists("a"))))
	want := []guard.Input{{Source: guard.SourceFile, Name: "a"}, {Source: guard.SourceLock, Name: "b"}}
	if got := c.RequiredInputs(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

// Leaves that ask about different things do not share a fact.
func TestRequiredInputs_Apart(t *testing.T) {
	for _, c := range []guard.Condition{
		guard.All(guard.LimitAvailable("api", "ann", 1), guard.LimitAvailable("api", "bob", 1)),
		guard.All(guard.BranchMerged("b", "main"), guard.BranchMerged("b", "release")),
		guard.All(guard.LockFree("x"), guard.FileExists("x"), guard.BranchExists("x"), guard.KeyExists("x")),
	} {
		if got := c.RequiredInputs(); len(got) != len(c.Of) {
			t.Errorf("%+v requires %v", c, got)
		}
	}
}

// "All of nothing is true." "Any of nothing is false."
func TestOfNothing(t *testing.T) {
	all, any := guard.All(), guard.Any()
	if a, b := all.Evaluate(nil).Outcome, any.Evaluate(nil).Outcome; a != guard.Passed || b != guard.Failed {
		t.Errorf("all of nothing %s, any of nothing %s", a, b)
	}
}

// The seed's property: "guard_evaluation_deterministic: same inputs → same result", to
// the byte, with reasons.
func TestDeterministic(t *testing.T) {
	for seed := range uint64(1000) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		in := guard.Inputs{}
		var list []guard.Condition
		for i := range 1 + rnd.IntN(6) {
			list = append(list, leaf(i, guard.Outcome(rnd.IntN(4)), in))
		}
		c := guard.Any(guard.All(list...), guard.Not(guard.Any(list...)))
		first, _ := json.Marshal(c.Explain(in))
		for range 3 {
			if again, _ := json.Marshal(c.Explain(in)); string(again) != string(first) {
				t.Fatalf("seed %d: %s then %s", seed, first, again)
			}
		}
	}
}

func TestBadConditions(t *testing.T) {
	deep := guard.FileExists("x")
	for range guard.MaxDepth + 1 {
		deep = guard.Not(deep)
	}
	many := guard.All(slices.Repeat([]guard.Condition{guard.FileExists("x")}, guard.MaxLeaves+1)...)
	for _, c := range []guard.Condition{
		{}, {Kind: "lock_busy", Name: "x"}, guard.LockFree(""), guard.LockHeldBy("x", ""), guard.SemaphoreAvailable("x", 0),
		guard.LimitAvailable("x", "k", -1), guard.Counter("x", "~", 3), {Kind: guard.KindKey, Name: "k"}, guard.FileExists("a\x00b"),
		guard.During(guard.Window{From: 25 * time.Hour}), guard.During(guard.Window{Days: []time.Weekday{9}}),
		{Kind: guard.KindNot}, {Kind: guard.KindNot, Of: []guard.Condition{deep, deep}}, deep, many,
		{Kind: guard.KindSemaphoreAvailable, Name: "x", Amount: 3, Limit: 2}, {Kind: guard.KindSemaphoreAvailable, Name: "x", Amount: 3, Limit: -1},
		{Kind: guard.KindLimitAvailable, Name: "x", Amount: 1, Limit: 2},
		{Kind: guard.KindFileExists, Name: "x", Of: []guard.Condition{guard.LockFree("y")}},
		guard.All(guard.LockFree("fine"), guard.Not(guard.BranchMerged("b", ""))),
	} {
		if err := c.Check(); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%.80v: %v", c, err)
		}
	}
	for _, name := range []string{strings.Repeat("n", guard.MaxName+1), "a\xffb"} {
		for _, c := range []guard.Condition{
			guard.LockFree(name), guard.LockHeldBy(name, "w1"), guard.LockHeldBy("l", name), guard.SemaphoreAvailable(name, 1), guard.Counter(name, guard.Equal, 1),
			guard.Leader(name, ""), guard.Leader("e", name), guard.LimitAvailable(name, "", 1), guard.LimitAvailable("api", name, 1), guard.KeyAbsent(name),
		} {
			if err := c.Check(); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%.80v: %v", c, err)
			}
		}
	}
	longest := guard.LockHeldBy(strings.Repeat("n", guard.MaxName), strings.Repeat("n", guard.MaxName))
	if err := longest.Check(); err != nil {
		t.Error(err)
	}
	c := guard.All(guard.LockFree("fine"), guard.Not(guard.BranchMerged("b", "")))
	if err := c.Check(); err == nil || err.Error() != "guard: all[1].not.branch_merged: what it is compared with is empty: invalid argument" {
		t.Errorf("the place is told as %v", err)
	}
}

// Twenty leaves that pass cost no memory.
func TestPassedAllocatesNothing(t *testing.T) {
	c, in := twenty()
	if n := testing.AllocsPerRun(100, func() { c.Evaluate(in) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func twenty() (guard.Condition, guard.Inputs) {
	in := guard.Inputs{}
	var list []guard.Condition
	for i := range 20 {
		list = append(list, leaf(i, guard.Passed, in))
	}
	return guard.All(list...), in
}

func BenchmarkTwentyLeaves(b *testing.B) {
	c, in := twenty()
	b.ReportAllocs()
	for b.Loop() {
		c.Evaluate(in)
	}
}

// What has a shape that Check refuses is an Error that says why, and no panic; under an Any beside a part
// that passed it decides nothing.
func TestShape(t *testing.T) {
	deep := guard.LockFree("x")
	for range 100_000 {
		deep = guard.Not(deep)
	}
	for want, c := range map[string]guard.Condition{
		"0 parts; not has one": {Kind: guard.KindNot},
		"2 parts; not has one": {Kind: guard.KindNot, Of: []guard.Condition{guard.LockFree("a"), guard.LockFree("b")}},
		"more than 32 levels":  deep,
	} {
		for _, r := range []guard.Result{c.Evaluate(nil), c.Explain(nil)} {
			if r.Outcome != guard.Error || len(r.Reasons) != 1 || !r.Reasons[0].Decides || !strings.Contains(r.Reasons[0].Got, want) {
				t.Errorf("%s: %.300s", want, r)
			}
		}
		either := guard.Any(c, guard.All())
		if r := either.Explain(nil); r.Outcome != guard.Passed || len(r.Reasons) != 1 || r.Reasons[0].Decides {
			t.Errorf("%s, or anything: %.300s", want, r)
		}
	}
}
