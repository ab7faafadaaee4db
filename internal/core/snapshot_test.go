package core_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// chunksOf writes a whole view.
func chunksOf(m *core.Machine, size int) (chunks [][]byte, sum uint64) {
	v := m.View()
	defer v.Close()
	for done := false; !done; {
		var c []byte
		c, done = v.Next(nil, size)
		chunks = append(chunks, c)
	}
	return chunks, v.Sum()
}

func restoreAll(chunks [][]byte) (*core.Machine, error) {
	r := core.NewRestorer()
	for _, c := range chunks {
		if err := r.Write(c); err != nil {
			return nil, err
		}
	}
	return r.Machine()
}

// A view that is written while the machine goes on is the machine as it was: its
// sum is that of a machine that stood still, and what is restored from it
// answers the rest of the log in the same way. Two views may be open at a time.
func TestViewStandsStill(t *testing.T) {
	for seed := range uint64(300) {
		cfg := core.Config{Budget: 2 + int(seed%40), Idle: 4, Ended: 3}
		l, m, still := newLoad(seed), core.New(cfg), core.New(cfg)
		for range 150 {
			if err := still.Apply(l.next(m, nil), nil); err != nil {
				t.Fatal(err)
			}
		}
		_, want := chunksOf(still, 1<<20)
		r := rand.New(rand.NewPCG(seed, 1))
		restorer, v := core.NewRestorer(), m.View()
		other := m.View()
		var later [][]byte
		for done := false; !done; {
			var chunk []byte
			if chunk, done = v.Next(nil, 1+r.IntN(1+int(seed%4)*100)); restorer.Write(chunk) != nil {
				t.Fatal("a good chunk is refused")
			}
			for range 1 + r.IntN(2) {
				later = append(later, l.next(m, nil))
			}
			if r.IntN(3) == 0 {
				other.Close()
				other = m.View()
			}
			other.Next(nil, 200)
		}
		if v.Close(); v.Sum() != want {
			t.Fatalf("seed %d: the view has sum %x, the machine that stood still %x", seed, v.Sum(), want)
		}
		other.Close()
		again, err := restorer.Machine()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, e := range later {
			if err := again.Apply(e, nil); err != nil {
				t.Fatal(err)
			}
		}
		_, a := chunksOf(m, 999)
		_, b := chunksOf(again, 50)
		if again.Hash() != m.Hash() || a != b {
			t.Fatalf("seed %d: restored, it goes another way: hash %x, want %x; sum %x, want %x", seed, again.Hash(), m.Hash(), b, a)
		}
	}
}

// The same entries give the same hash and state, whatever Output they are given.
func TestReplay(t *testing.T) {
	l, m := newLoad(5), core.New(core.Config{})
	var log [][]byte
	var out core.Output
	for range 2000 {
		out.Reset()
		log = append(log, l.next(m, &out))
	}
	replay := core.New(core.Config{})
	for _, e := range log {
		if err := replay.Apply(e, nil); err != nil {
			t.Fatal(err)
		}
	}
	_, a := chunksOf(m, 4096)
	_, b := chunksOf(replay, 4096)
	if m.Hash() != replay.Hash() || m.Revision() != replay.Revision() || a != b {
		t.Errorf("hash %x and sum %x, replayed %x and %x", m.Hash(), a, replay.Hash(), b)
	}
}

func busyMachine() *core.Machine {
	l, m := newLoad(3), core.New(core.Config{})
	for range 400 {
		l.next(m, nil)
	}
	return m
}

// Any flipped bit, a missing, doubled or swapped chunk is an error.
func TestDamagedSnapshot(t *testing.T) {
	chunks, _ := chunksOf(busyMachine(), 500)
	if len(chunks) < 4 {
		t.Fatalf("only %d chunks", len(chunks))
	}
	if _, err := restoreAll(chunks); err != nil {
		t.Fatal(err)
	}
	for i, c := range chunks {
		for bit := 0; bit < 8*len(c); bit += 5 {
			c[bit/8] ^= 1 << (bit % 8)
			if _, err := restoreAll(chunks); !errors.Is(err, core.ErrFrame) && !errors.Is(err, core.ErrVersion) {
				t.Fatalf("bit %d of chunk %d flipped: %v", bit, i, err)
			}
			c[bit/8] ^= 1 << (bit % 8)
		}
	}
	for what, list := range map[string][][]byte{
		"no end":      chunks[:len(chunks)-1],
		"no begin":    chunks[1:],
		"missing":     append(append([][]byte{}, chunks[:1]...), chunks[2:]...),
		"doubled":     append(append([][]byte{}, chunks[:2]...), chunks[1:]...),
		"more":        append(append([][]byte{}, chunks...), chunks[1]),
		"swapped":     append([][]byte{chunks[1], chunks[0]}, chunks[2:]...),
		"nothing":     nil,
		"empty chunk": {{}},
	} {
		if _, err := restoreAll(list); !errors.Is(err, core.ErrFrame) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzSnapshot: whatever the records say, restoring is an error or gives a
// machine that works; it never panics.
func FuzzSnapshot(f *testing.F) {
	for _, size := range []int{64, 1 << 20} {
		chunks, _ := chunksOf(busyMachine(), size)
		f.Add(chunks[0][:len(chunks[0])-8])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := restoreAll(core.Reseal(b))
		if err != nil {
			return
		}
		_ = m.Apply(core.AppendEntry(nil, &core.Entry{Now: m.Now() + 1e12}), nil)
		chunksOf(m, 1000)
	})
}

// No record changes before the open views have it as it was.
func TestNothingChangesUnsaved(t *testing.T) {
	for seed := range uint64(90) {
		l, m := newLoad(seed), core.New(core.Config{Budget: []int{1, 2, 3, 5, 8, 40}[seed%6], Idle: 4, Ended: 3})
		for range 60 {
			check, done := core.Untouched(m)
			for range 8 {
				l.next(m, nil)
				if wrong := check(); wrong != "" {
					t.Fatalf("seed %d: %s", seed, wrong)
				}
			}
			done()
		}
	}
}

// An upgrade that is granted while a view is open is, to the view, still one
// that waits.
func TestViewOfUpgrade(t *testing.T) {
	r := newRig(core.Config{})
	a, b := r.open(1, 300e9), r.open(2, 300e9)
	base := r.must(t, a, core.Command{Op: core.OpAcquire, Wants: reads("x"), MinHold: 9e9, MaxHold: 99e9}, core.CodeOK)
	other := r.must(t, b, core.Command{Op: core.OpAcquire, Wants: reads("x")}, core.CodeOK)
	r.must(t, a, core.Command{Op: core.OpUpgrade, Target: base.Seq}, core.CodeQueued)
	_, want := chunksOf(r.m, 1<<20)
	v := r.m.View()
	defer v.Close()
	r.must(t, b, core.Command{Op: core.OpRelease, Target: other.Seq}, core.CodeOK)
	for done := false; !done; {
		_, done = v.Next(nil, 1<<20)
	}
	if v.Sum() != want {
		t.Error("the view has seen the grant")
	}
}
