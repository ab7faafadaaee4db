package fence_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
)

// twin decides by looking through everything that ever passed.
type twin struct {
	strict bool
	passed []fence.Pass
}

func (w *twin) pass(p fence.Pass) bool {
	for _, q := range w.passed {
		switch {
		case q.Resource != p.Resource:
		case q.Mode == fence.Exclusive && q.Token > p.Token,
			q.Mode == fence.Shared && p.Mode == fence.Exclusive && q.Token >= p.Token,
			w.strict && q.Token == p.Token:
			return false
		}
	}
	w.passed = append(w.passed, p)
	return true
}

// agree shows n random passes to a gate and to its twin. Tokens come from a
// slowly rising band, so that old, repeated and new ones all occur.
func agree(t *testing.T, seed uint64, n int, f check, strict, shared bool) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := twin{strict: strict}
	passed := 0
	for i := range n {
		p := fence.Pass{Resource: []string{"a", "b"}[rnd.IntN(2)], Token: fence.Token(1 + uint64(i/4+rnd.IntN(12)))}
		if shared && rnd.IntN(2) == 0 {
			p.Mode = fence.Shared
		}
		err := f(p.Resource, p.Token, p.Mode)
		if err != nil && !errors.Is(err, driver.ErrStale) {
			t.Fatalf("seed %d, %d: %v: %v", seed, i, p, err)
		}
		want := w.pass(p)
		if want != (err == nil) {
			t.Fatalf("seed %d, %d: %+v: the twin says %v, the gate %v; passed: %v", seed, i, p, want, err, w.passed)
		}
		if want {
			passed++
		}
	}
	if passed < n/10 || passed > n*9/10 {
		t.Errorf("seed %d: %d of %d passed; such a run tests little", seed, passed, n)
	}
}

func TestGateAgreesWithItsTwin(t *testing.T) {
	for seed := range uint64(300) {
		strict := seed%2 == 1
		agree(t, seed, 200, (&fence.Gate{Strict: strict}).Check, strict, true)
	}
}
