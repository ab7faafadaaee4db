package sim_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-io/holdfast/internal/sim"
)

// counter is what linearizability is checked against: Add gives the new value,
// a read the value.
var counter = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		in, out := input.(sim.HistoryOp), output.(sim.HistoryOp)
		value := state.(uint64) + in.Add
		return out.Value == value, value
	},
	Partition: byName,
}

func byName(history []porcupine.Operation) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	var names []string
	for _, o := range history {
		name := o.Input.(sim.HistoryOp).Name
		if parts[name] == nil {
			names = append(names, name)
		}
		parts[name] = append(parts[name], o)
	}
	slices.SortFunc(names, strings.Compare)
	var out [][]porcupine.Operation
	for _, n := range names {
		out = append(out, parts[n])
	}
	return out
}

// linearizable checks the history of a run.
func linearizable(t *testing.T, seed uint64, history []sim.HistoryOp) {
	t.Helper()
	var ops []porcupine.Operation
	for _, h := range history {
		ops = append(ops, porcupine.Operation{ClientId: h.Client, Input: h, Call: h.Call, Output: h, Return: h.Return})
	}
	if porcupine.CheckOperationsTimeout(counter, ops, time.Minute) != porcupine.Ok {
		t.Errorf("seed %d: the counters' history of %d operations is not linearizable\nreplay with: go test ./internal/sim -run TestSeeds -sim.seed=%d", seed, len(ops), seed)
	}
}

// The check can fail: a read that goes back is noticed.
func TestHistoryCheckFails(t *testing.T) {
	bad := []porcupine.Operation{
		{ClientId: 0, Input: sim.HistoryOp{Name: "a", Add: 1}, Call: 0, Output: sim.HistoryOp{Value: 1}, Return: 10},
		{ClientId: 1, Input: sim.HistoryOp{Name: "a"}, Call: 20, Output: sim.HistoryOp{Value: 0}, Return: 30},
	}
	if porcupine.CheckOperations(counter, bad) {
		t.Error("a stale read passed")
	}
}
