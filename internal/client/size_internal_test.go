package client

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// A command that fits is taken by the machine's decoder, whatever numbers a driver's
// caller has put into it; without any that mean nothing it fits.
func TestFits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 20_000 {
		c := anyCommand(rnd)
		err := core.DecodeFrame(core.AppendFrame(nil, &core.Frame{Commands: []core.Command{c}}), &core.Frame{})
		if got := fits(&c); (got == nil) != (err == nil) {
			t.Fatalf("command %d fits: %v; the decoder says %v: %+v", i, got, err, c)
		}
	}
}

// anyCommand has numbers in and beyond every range, and now and then many parts.
func anyCommand(rnd *rand.Rand) core.Command {
	number := func() uint8 { return uint8(rnd.IntN(10)) * uint8(rnd.IntN(3)/2) }
	n := []int{0, 1, 1, 2, 1100}[rnd.IntN(5)]
	text := strings.Repeat("x", []int{0, 5, 70_000}[rnd.IntN(12)/5])
	switch rnd.IntN(5) {
	case 4:
		return core.Command{Op: core.OpLimit, Ask: &core.LimitAsk{Op: core.LimitOp(number()), Key: text}}
	case 0:
		return core.Command{Op: core.OpTxn, If: make([]core.Compare, n%3), Then: []core.KeyOp{{Kind: core.KeyOpKind(number()), Sort: core.SortBy(number()), After: text}}}
	case 1:
		return core.Command{Op: core.OpTxn, If: []core.Compare{{Target: core.CompareTarget(number()), Is: core.Relation(number())}}, Else: make([]core.KeyOp, n)}
	case 2:
		c := core.Command{Op: core.OpAcquire, Wants: make([]core.Want, n), Owner: text}
		if n > 0 {
			c.Wants[0] = core.Want{Kind: core.Kind(number()), Mode: core.Mode(number())}
		}
		return c
	}
	return core.Command{Op: core.OpCount, Kind: core.Kind(number()), Count: core.CountOp(number()), Policy: core.Policy(number()), Value: []byte(text)}
}
