package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/internal/core"
)

// readers is a machine with that many readers of a lock.
func readers(t *testing.T, name string, n int) *core.Machine {
	t.Helper()
	m := core.New(core.Config{})
	var out core.Output
	e := core.Entry{Version: core.EntryVersion, Now: 1}
	f := core.Frame{Session: core.SessionID{1}, Mark: 1, Commands: []core.Command{{Op: core.OpOpen, TTL: 1 << 40}}}
	for i := range n {
		f.Commands = append(f.Commands, core.Command{Op: core.OpAcquire, Seq: uint64(i + 1), Owner: fmt.Sprint("r", i),
			Wants: []core.Want{{Name: name, Kind: core.RWMutex, Mode: core.Shared}}})
		if len(f.Commands) == 1000 || i == n-1 {
			e.Frames = [][]byte{core.AppendFrame(nil, &f)}
			if err := m.Apply(core.AppendEntry(nil, &e), &out); err != nil {
				t.Fatal(err)
			}
			f.Commands, f.Mark = f.Commands[:0], uint64(i+2)
		}
	}
	return m
}

// A condition reads so many holders of its locks and no more: a leaf that asks for one among more
// is an error, and one that asks whether a lock is free is decided by the first.
func TestGuards_ManyHolders(t *testing.T) {
	for _, n := range []int{2, moreHolders, moreHolders + 1, maxHolders, maxHolders + 1} {
		m := readers(t, "cfg", n)
		for _, asks := range []bool{false, true} {
			v := view{m: m, facts: guard.Inputs{}, asked: map[string]bool{"cfg": asks}, left: maxHolders, spare: moreHolders}
			in := guard.Input{Source: guard.SourceLock, Name: "cfg"}
			v.read(in)
			f, whole := v.facts[in], n <= moreHolders || asks && n <= maxHolders
			if !f.Is || f.Text != "r0" || (len(f.Others) == n-1) != whole || !whole && len(f.Others) > 0 || (f.Err != "") != (asks && !whole) {
				t.Errorf("%d holders, asked for: %t: %d others, %q %q", n, asks, len(f.Others), f.Text, f.Err)
			}
		}
	}
}

// All locks of a condition share what may be read.
func TestGuards_HoldersOfSeveralLocks(t *testing.T) {
	v := view{m: readers(t, "cfg", 600), facts: guard.Inputs{}, asked: map[string]bool{"cfg": true}, left: 1000}
	r, _, err := v.resource("cfg", core.RWMutex)
	if err != nil {
		t.Fatal(err)
	}
	if others, err := v.others(&r); err != nil || len(others) != 599 {
		t.Errorf("the first: %d others, %v", len(others), err)
	}
	if others, err := v.others(&r); err == nil || len(others) != 0 {
		t.Errorf("the second, with 400 left: %d others, %v", len(others), err)
	}
}

// The locks of which a condition asks for a holder are found wherever they stand in it.
func TestGuards_AskedHolders(t *testing.T) {
	var c guard.Condition
	text := `{"Kind":"all","Of":[{"Kind":"lock_free","Name":"a"},{"Kind":"not","Of":[{"Kind":"any","Of":[{"Kind":"lock_held_by","Name":"b","Other":"x"}]}]}]}`
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&c); err != nil {
		t.Fatal(err)
	}
	if got := askedHolders(&c, map[string]bool{}); len(got) != 1 || !got["b"] {
		t.Errorf("asked for are the holders of %v", got)
	}
}
