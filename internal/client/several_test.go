package client_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/client"
	"github.com/holdfast-io/holdfast/internal/core"
)

// candidates is a machine with so many elections, each with ten candidates that have values of so
// many bytes, and their names.
func candidates(t *testing.T, elections, value int) (*core.Machine, []string) {
	t.Helper()
	m := core.New(core.Config{})
	var out core.Output
	var names []string
	seq := uint64(0)
	f := core.Frame{Session: core.SessionID{1}, Mark: 1, Commands: []core.Command{{Op: core.OpOpen, TTL: 1 << 40}}}
	for i := range elections {
		names = append(names, fmt.Sprint("e", i))
		for range 10 {
			seq++
			f.Commands = append(f.Commands, core.Command{Op: core.OpAcquire, Seq: seq, Value: make([]byte, value), Wants: []core.Want{{Name: names[i], Kind: core.Election}}})
		}
		e := core.Entry{Version: core.EntryVersion, Now: 1, Frames: [][]byte{core.AppendFrame(nil, &f)}}
		if err := m.Apply(core.AppendEntry(nil, &e), &out); err != nil {
			t.Fatal(err)
		}
		f.Commands, f.Mark = nil, seq+1
	}
	return m, names
}

// An answer about several names is bounded, whatever their claims say: of each at least the first
// holder is told, with more if that is not all, and what would be too long for a message is refused.
func TestInspectSeveral_Bounded(t *testing.T) {
	for _, c := range []struct {
		elections, value int
		whole, refused   bool
	}{{20, 4096, true, false}, {100, 4096, false, false}, {1000, 4096, false, true}, {1000, 1, false, false}} {
		m, names := candidates(t, c.elections, c.value)
		got, err := client.InspectMachine(m, 1, "", &driver.InspectRequest{Names: names})
		if errors.Is(err, driver.ErrExhausted) != c.refused {
			t.Fatalf("%d names with values of %d bytes: %v", c.elections, c.value, err)
		}
		size, all := 0, true
		for i := range got.Resources {
			r := &got.Resources[i]
			told := len(r.Holders) + len(r.Waiters)
			if len(r.Holders) != 1 || r.More != (told < 10) {
				t.Fatalf("%q: %d holders, %d waiters, more: %t", r.Name, len(r.Holders), len(r.Waiters), r.More)
			}
			all = all && told == 10
			size += told * c.value
		}
		if !c.refused && len(got.Resources) != c.elections || size > 3<<20 || err == nil && all != c.whole {
			t.Errorf("%d names with values of %d bytes: %d are told, with all of their claims: %t, in %d bytes", c.elections, c.value, len(got.Resources), all, size)
		}
	}
}
