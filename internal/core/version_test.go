package core_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// stamp is a bare entry of a version.
func stamp(version uint8) []byte {
	return core.AppendEntry(nil, &core.Entry{Version: version, Now: 1})
}

// rewritten is the machine of a snapshot of m, and that snapshot.
func rewritten(t *testing.T, m *core.Machine) (*core.Machine, []byte) {
	t.Helper()
	v, x := m.View(), core.NewRestorer()
	defer v.Close()
	chunk, _ := v.Next(nil, 1<<20)
	if err := x.Write(chunk); err != nil {
		t.Fatal(err)
	}
	again, err := x.Machine()
	if err != nil {
		t.Fatal(err)
	}
	return again, chunk
}

// A machine is of the greatest version that an entry brought, and so is what is
// restored from its snapshot. Before the first newer entry the snapshot is the one that
// the program of before wrote, byte for byte.
func TestVersion_FollowsEntries(t *testing.T) {
	m, was := core.New(core.Config{}), core.New(core.Config{})
	for _, c := range []struct{ entry, want uint8 }{{1, 2}, {2, 2}, {3, 3}, {2, 3}, {1, 3}} {
		if err := m.Apply(stamp(c.entry), nil); err != nil || m.Version() != c.want {
			t.Errorf("after an entry of version %d the machine is of version %d, %v; want %d", c.entry, m.Version(), err, c.want)
		}
		again, chunk := rewritten(t, m)
		if again.Version() != c.want {
			t.Errorf("version %d is restored as %d", c.want, again.Version())
		}
		if err := was.Apply(stamp(min(c.entry, 2)), nil); err != nil {
			t.Fatal(err)
		}
		if _, old := rewritten(t, was); bytes.Equal(old, chunk) != (c.want == core.BaseVersion) {
			t.Errorf("a snapshot in version %d is %x, and that of before %x", c.want, chunk, old)
		}
	}
}

// An entry, or the snapshot of a machine, of a version that nobody knows yet is refused
// before anything has changed.
func TestVersion_TooNew(t *testing.T) {
	m := core.New(core.Config{})
	if err := m.Apply(stamp(core.EntryVersion+1), nil); !errors.Is(err, core.ErrVersion) || m.Version() != core.BaseVersion || m.Now() != 0 {
		t.Errorf("an entry of the next version: %v, and the machine is of version %d at %d", err, m.Version(), m.Now())
	}
	if err := core.RestoredVersion(core.EntryVersion + 1); !errors.Is(err, core.ErrVersion) {
		t.Errorf("a snapshot of the next version: %v", err)
	}
	for _, kind := range []bool{false, true} { // it must not pass for a damaged one
		if _, err := restoreAll([][]byte{core.OfNext(kind)}); !errors.Is(err, core.ErrVersion) {
			t.Errorf("a snapshot of the next version with what is new there, %v: %v", kind, err)
		}
	}
	if err := core.RestoredVersion(core.BaseVersion); !errors.Is(err, core.ErrFrame) {
		t.Errorf("a snapshot that tells what goes without saying: %v", err)
	}
}

// A command stands in no entry of a version before its own.
func TestVersion_OfCommands(t *testing.T) {
	since := core.OpSince[core.OpCount]
	core.OpSince[core.OpCount] = 3
	defer func() { core.OpSince[core.OpCount] = since }()
	f := core.Frame{Session: sessionID(1), Commands: []core.Command{{Op: core.OpOpen, TTL: 1e9}, {Op: core.OpCount, Seq: 1, Name: "n", A: 1}}}
	if got := f.Since(); got != 3 {
		t.Errorf("the frame is of version %d", got)
	}
	frames := [][]byte{core.AppendFrame(nil, &f)}
	m := core.New(core.Config{})
	if err := m.Apply(core.AppendEntry(nil, &core.Entry{Version: 2, Frames: frames}), nil); !errors.Is(err, core.ErrFrame) || m.Revision() != 0 {
		t.Errorf("a command of version 3 in an entry of version 2: %v, and the revision is %d", err, m.Revision())
	}
	if err := m.Apply(core.AppendEntry(nil, &core.Entry{Version: 3, Frames: frames}), nil); err != nil {
		t.Errorf("in an entry of version 3: %v", err)
	}
}

// A revocation without a number is of version 5, and one with a number of any.
func TestVersion_OfRevoke(t *testing.T) {
	for seq, want := range []uint8{5, 0} {
		f := core.Frame{Session: sessionID(1), Commands: []core.Command{{Op: core.OpRevoke, Seq: uint64(seq), Session: sessionID(1)}}}
		if got := f.Since(); got != want {
			t.Errorf("number %d: the frame is of version %d, want %d", seq, got, want)
		}
	}
}

// Two machines that refused the same in other words have the same state; one that has
// another number does not.
func TestCheckView_LeavesOutTexts(t *testing.T) {
	sum := func(m *core.Machine) uint64 {
		v := m.CheckView()
		defer v.Close()
		for done := false; !done; {
			_, done = v.Next(nil, 1<<20)
		}
		return v.Sum()
	}
	made := func() *core.Machine {
		r := newRig(core.Config{})
		id := r.open(1, 1e9)
		r.marks[id] = 1 // so that the results are kept
		r.do(id, core.Command{Op: core.OpCount, Name: "n", Count: core.CountAdd, A: 1})
		if res := r.do(id, core.Command{Op: core.OpRelease, Target: 99}); res.Code == core.CodeOK || res.Text == "" {
			t.Fatalf("nothing is refused: %+v", res)
		}
		return r.m
	}
	one, other := made(), made()
	if n := core.Reword(other, "in other words"); n != 1 {
		t.Fatalf("%d refusals are kept", n)
	}
	if sum(one) != sum(other) {
		t.Error("states that refused the same in other words differ")
	}
	if !other.Damage(0) || sum(one) == sum(other) {
		t.Error("states with other counts do not differ")
	}
}
