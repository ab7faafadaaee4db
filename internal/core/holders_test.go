package core_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// A holder that comes when many have become few is found by its token, as on a machine that
// was restored meanwhile: its release is taken, and with the same answer everywhere.
func TestHoldersByTokenWhenManyHaveLeft(t *testing.T) {
	const many = 60
	for stay := range many {
		r := newRig(core.Config{})
		id := r.open(1, 300e9)
		take := func() uint64 {
			want := core.Want{Name: "s", Kind: core.Semaphore, Mode: core.Shared, Weight: 1, Limit: 100}
			return r.must(t, id, core.Command{Op: core.OpAcquire, Wants: []core.Want{want}}, core.CodeOK).Token
		}
		giveBack := func(token uint64) {
			r.must(t, id, core.Command{Op: core.OpRelease, Name: "s", Token: token}, core.CodeOK)
		}
		var tokens []uint64
		for range many {
			tokens = append(tokens, take())
		}
		for _, token := range tokens[stay:] {
			giveBack(token)
		}
		for _, token := range append([]uint64{take(), take()}, tokens[:stay]...) {
			if _, ok := r.m.Holder("", "s", token); !ok {
				t.Fatalf("with %d that stayed the holder with token %d is not found", stay, token)
			}
			giveBack(token)
		}
	}
}
