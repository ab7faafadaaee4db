package fence_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
)

// check is what every kind of gate does with a token.
type check func(resource string, token fence.Token, mode fence.Mode) error

// script shows tokens to a gate, one a word: x20 is exclusive, s20 shared, and a
// '!' behind it means that it must be refused as stale.
func script(t *testing.T, f check, words string) {
	t.Helper()
	for word := range strings.FieldsSeq(words) {
		var kind rune
		var token fence.Token
		if _, err := fmt.Sscanf(word, "%c%d", &kind, &token); err != nil {
			t.Fatalf("%s: %v", word, err)
		}
		mode := fence.Exclusive
		if kind == 's' {
			mode = fence.Shared
		}
		err := f("r", token, mode)
		if want := strings.HasSuffix(word, "!"); errors.Is(err, driver.ErrStale) != want || !want && err != nil {
			t.Fatalf("%s in %q: got %v", word, words, err)
		}
	}
}

// rules are what every gate obeys, whatever it remembers with.
var rules = []struct{ name, words string }{
	// "A gate that knows only 'newest seen' refuses an older but valid reader
	// or semaphore holder."
	{"scenario 7", "x10 s25 s20 s25 s11"},
	// "Writer 20 lost, reader 25 seen at the gate, 20's late write passes."
	{"scenario 39", "x20 s25 x20! x26"},
	// "T5 Write(X, tok=101) last_token=101; T7 Write(Y, tok=100) REJECTED!"
	{"timeline of the package comment", "x101 x100! x101"},
	{"a holder writes often", "x5 x5 x5"},
	{"a reader reads often", "s5 s5 s5"},
	{"a reader that a writer followed", "s20 x30 s20! s30 s31"},
	{"a writer that became a reader", "x20 s20 s20 x20! s21"},
	{"an elder reader does not lower the mark", "s25 s20 x22! x26"},
	{"an elder writer among readers", "s20 s25 x24! s22 x25! x26 s25!"},
	{"what is refused changes nothing", "x10 s25 x20! s12 s11 x9! s10"},
	{"the greatest token", "x9007199254740991 s9007199254740991 x9007199254740991!"},
}

// strictRules are those of a strict gate: "Token {} already used".
var strictRules = []struct{ name, words string }{
	{"writers", "x100 x100! x101 x101! x100!"},
	{"readers", "s25 s20 s25! s20! s22 s22!"},
	{"elder readers are still good", "x10 s25 s20 s11"},
	{"used by the writer, shown by a reader", "x20 s20! s21"},
	{"a writer clears the readers", "s20 s25 x30 s25! s30! s31 s31! x31! x32"},
}

func TestRulesOfGate(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) { script(t, new(fence.Gate).Check, r.words) })
	}
	for _, r := range strictRules {
		t.Run("strict "+r.name, func(t *testing.T) { script(t, (&fence.Gate{Strict: true}).Check, r.words) })
	}
}

func TestResourcesAreApart(t *testing.T) {
	var g fence.Gate
	for _, p := range []fence.Pass{{Resource: "a", Token: 9}, {Resource: "b", Token: 3}, {Resource: "A", Token: 1}} {
		if err := g.Check(p.Resource, p.Token, p.Mode); err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
	if x, s := g.Last("b"); x != 3 || s != 0 {
		t.Errorf("b: last %d, %d", x, s)
	}
}

func TestARefusalSaysWhatToDo(t *testing.T) {
	tests := []struct {
		strict      bool
		first, then fence.Pass
		want        []string
		refusal     fence.Refusal
	}{
		{false, fence.Pass{Resource: "jobs/7", Token: 101}, fence.Pass{Resource: "jobs/7", Token: 100},
			[]string{`fence check "jobs/7"`, "stale", "exclusive token 100", "exclusive token 101", "acquire again"},
			fence.Refusal{Token: 100, LastExclusive: 101}},
		{false, fence.Pass{Resource: "r", Token: 25, Mode: fence.Shared}, fence.Pass{Resource: "r", Token: 20},
			[]string{"exclusive token 20", "shared token 25", "acquire again"},
			fence.Refusal{Token: 20, LastShared: 25}},
		{true, fence.Pass{Resource: "r", Token: 7}, fence.Pass{Resource: "r", Token: 7},
			[]string{"token 7 already used", "see whether"},
			fence.Refusal{Token: 7, LastExclusive: 7, Repeated: true}},
	}
	for _, tt := range tests {
		g := fence.Gate{Strict: tt.strict}
		if err := g.Check(tt.first.Resource, tt.first.Token, tt.first.Mode); err != nil {
			t.Fatal(err)
		}
		err := g.Check(tt.then.Resource, tt.then.Token, tt.then.Mode)
		wantError(t, err, driver.ErrStale, tt.want...)
		if r, ok := errors.AsType[*fence.Refusal](err); !ok || *r != tt.refusal {
			t.Errorf("refusal %+v, want %+v", r, tt.refusal)
		}
	}
}

// wantError looks for the kind, the certainty that nothing was done, and words.
func wantError(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || !errors.Is(e.Kind, kind) || e.Outcome != driver.NotDone {
		t.Errorf("got %v (%T), want kind %v, not done", err, err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q lacks %q", err, w)
		}
	}
}

// badPasses cannot have come from a grant. The tokens are scenario 26: "A token
// with the high bit set is refused by database/sql."
var badPasses = []struct {
	pass fence.Pass
	word string
}{
	{fence.Pass{Resource: "r", Token: 0}, "token 0 belongs to no grant"},
	{fence.Pass{Resource: "r", Token: 1 << 53}, "below 2^53"},
	{fence.Pass{Resource: "r", Token: 1 << 63}, "below 2^53"},
	{fence.Pass{Resource: "r", Token: math.MaxUint64}, "below 2^53"},
	{fence.Pass{Resource: "r", Token: 1, Mode: 2}, "mode 2 is unknown"},
	{fence.Pass{Resource: "", Token: 1}, "no name"},
	{fence.Pass{Resource: strings.Repeat("n", 513), Token: 1}, "513 bytes"},
	{fence.Pass{Resource: "a\x00b", Token: 1}, "U+0000"},
	{fence.Pass{Resource: "a\u0085b", Token: 1}, "U+0085"},
	{fence.Pass{Resource: "a\xff", Token: 1}, "UTF-8"},
}

func TestBadPassesAreRefusedAndNotRemembered(t *testing.T) {
	for _, bad := range badPasses {
		var g fence.Gate
		wantError(t, g.Check(bad.pass.Resource, bad.pass.Token, bad.pass.Mode), fs.ErrInvalid, bad.word)
		wantError(t, g.Do(t.Context(), bad.pass.Resource, bad.pass.Token, bad.pass.Mode, nil), fs.ErrInvalid, bad.word)
		if g.Len() != 0 {
			t.Errorf("%v is remembered", bad.pass)
		}
	}
	if err := new(fence.Gate).Check(strings.Repeat("n", 512), fence.MaxToken, fence.Shared); err != nil {
		t.Error(err)
	}
}

func TestInt64(t *testing.T) {
	for _, token := range []uint64{1, fence.MaxToken} {
		if n, err := fence.Int64(fence.Token(token)); err != nil || n != int64(token) {
			t.Errorf("%d: %d, %v", token, n, err)
		}
	}
	for _, token := range []uint64{0, fence.MaxToken + 1, 1 << 63} {
		_, err := fence.Int64(fence.Token(token))
		wantError(t, err, fs.ErrInvalid)
	}
}

func TestParseToken(t *testing.T) {
	for _, s := range []string{"1", "9007199254740991"} {
		if n, err := fence.ParseToken(s); err != nil || fmt.Sprint(n) != s {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	}
	for _, s := range []string{"", "0", "-1", "+1", "01", " 1", "1 ", "1e3", "0x1", "1_0", "1.0", "٣", "9007199254740992", "18446744073709551616"} {
		if n, err := fence.ParseToken(s); n != 0 {
			t.Errorf("%q: %d", s, n)
		} else {
			wantError(t, err, fs.ErrInvalid)
		}
	}
}

func TestAFullGateRefusesAndNeverForgets(t *testing.T) {
	g := fence.Gate{MaxResources: 2}
	script(t, g.Check, "x10")
	if err := g.Check("s", 10, fence.Shared); err != nil {
		t.Fatal(err)
	}
	wantError(t, g.Check("third", 5, fence.Exclusive), driver.ErrExhausted, "third", "2 resources", "MaxResources", "Forget")
	wantError(t, g.Do(t.Context(), "third", 5, fence.Exclusive, nil), driver.ErrExhausted)
	script(t, g.Check, "x9! x11")
	if err := g.Forget("s"); err != nil {
		t.Fatal(err)
	}
	if err := g.Check("third", 5, fence.Exclusive); err != nil {
		t.Error(err)
	}
}

// "Forgetting a resource would accept stale tokens": the danger is real.
func TestForgetOpensTheGate(t *testing.T) {
	var g fence.Gate
	script(t, g.Check, "x10 x9!")
	if err := g.Forget("r"); err != nil {
		t.Fatal(err)
	}
	if err := g.Forget("never seen"); err != nil {
		t.Fatal(err)
	}
	script(t, g.Check, "x9")
}

func TestAStrictGateBoundsItsMemory(t *testing.T) {
	g := fence.Gate{Strict: true}
	for token := range uint64(4096) {
		if err := g.Check("r", fence.Token(token+1), fence.Shared); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, g.Check("r", 5000, fence.Shared), driver.ErrExhausted, "4096", "exclusive")
	script(t, g.Check, "s1! s4096! x4096! x5000 s5001 s5001!")
}
