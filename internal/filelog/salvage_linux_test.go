package filelog_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/filelog"
)

// After the power failed, with the file cut at any byte or with any byte of it wrong,
// the log has all records that are whole, if those are at least what was on disk; else
// it is refused and stays as it is.
func TestSalvage_EveryByte(t *testing.T) {
	dir, w := t.TempDir(), newWords()
	p := start(t, dir, w, 100)
	for i := range 10 {
		p.add(fmt.Sprint("record ", i))
	}
	p.CompactAt = 1 << 30
	whole, ends := []int{len(p.bodies)}, []int{len(read(t, dir))} // after the snapshot and each record
	for i := range 6 {
		p.add(fmt.Sprint("later ", i))
		whole, ends = append(whole, len(p.bodies)), append(ends, len(read(t, dir)))
	}
	all, generation := read(t, dir), p.Here().Generation()
	for _, durable := range []int{0, 4} {
		for at := range len(all) + 1 {
			n := kept(ends, at)
			for _, b := range []string{all[:at], flip(all, at)} {
				salvages(t, b, filelog.At(generation, uint64(ends[durable])), n >= durable, func() []string { return p.bodies[:whole[n]] })
			}
		}
	}
}

// kept is the index of the last end up to which all bytes before at go; -1: none.
func kept(ends []int, at int) int {
	n := -1
	for i, end := range ends {
		if end <= at {
			n = i
		}
	}
	return n
}

// flip is b with one byte wrong; at the end of it: b.
func flip(b string, at int) string {
	if at == len(b) {
		return b
	}
	return b[:at] + string([]byte{b[at] ^ 0x41}) + b[at+1:]
}

func salvages(t *testing.T, b string, durable filelog.Position, ok bool, want func() []string) {
	t.Helper()
	dir, w := t.TempDir(), newWords()
	defer os.RemoveAll(dir) // thousands of them
	if err := os.WriteFile(filepath.Join(dir, filelog.Name), []byte(b), 0o666); err != nil {
		t.Fatal(err)
	}
	w.Store(filelog.End, uint64(durable))
	w.Store(filelog.Durable, uint64(durable))
	w.Store(filelog.Replacing, 1)
	p := newProcess(t, dir, w, 1<<30)
	err := p.Salvage()
	defer p.Close()
	if !ok {
		if !errors.Is(err, driver.ErrUnavailable) || read(t, dir) != b {
			t.Fatalf("%d bytes, on disk up to %d: %v", len(b), durable.Offset(), err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%d bytes, on disk up to %d: %v", len(b), durable.Offset(), err)
	}
	p.sees(want())
	p.add("after")
	p.sees(append(want()[:len(want()):len(want())], "after"))
}

// A log that was changed by hand while it is in use, or that is another than the one
// that counts, is refused with the place and the reason.
func TestDamaged(t *testing.T) {
	for what, c := range map[string]struct {
		harm func(path string) error
		says string
	}{
		"removed":   {os.Remove, "removed while it was in use"},
		"cut short": {func(path string) error { return os.Truncate(path, 40) }, "cut short while it was in use"},
	} {
		dir, w := t.TempDir(), newWords()
		p := start(t, dir, w, 1<<30)
		p.add("a")
		if err := c.harm(filepath.Join(dir, filelog.Name)); err != nil {
			t.Fatal(err)
		}
		if err := p.ready(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	dir, w := t.TempDir(), newWords()
	start(t, dir, w, 1<<30)
	w.Store(filelog.End, uint64(filelog.At(7, 99)))
	if err := newProcess(t, dir, w, 1).Load(); err == nil || !strings.Contains(err.Error(), "number 7 is in use") {
		t.Errorf("another generation: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, filelog.Name)); err != nil {
		t.Fatal(err)
	}
	if err := newProcess(t, dir, w, 1).Make(); err == nil || !strings.Contains(err.Error(), "it is missing") {
		t.Errorf("no log where there was one: %v", err)
	}
}

// Flushes that are asked for together share syncs, and say so to all processes.
func TestFlush_Shared(t *testing.T) {
	dir, w := t.TempDir(), newWords()
	p := start(t, dir, w, 1<<30)
	var all sync.WaitGroup
	for i := range 1000 {
		p.Lock()
		p.add(fmt.Sprint(i))
		here := p.Here()
		p.Unlock()
		all.Go(func() {
			if err := p.Flush(here); err != nil || filelog.Position(w.Load(filelog.Durable)) < here {
				t.Errorf("on disk up to %d, want %d: %v", w.Load(filelog.Durable), here, err)
			}
		})
	}
	all.Wait()
	if before := p.synced; p.Flush(p.Here()) != nil || p.synced != before {
		t.Errorf("what is on disk was synced again")
	}
}

// A flush ends also when the shared words cannot be trusted any more.
func TestFlush_BrokenWords(t *testing.T) {
	dir, w := t.TempDir(), newWords()
	p := start(t, dir, w, 1<<30)
	p.add("a")
	w.broken = errors.New("the file of the words was cut short")
	if err := p.Flush(p.Here()); err != nil {
		t.Error(err)
	}
}

// A sync that fails is told, and what it was to put on disk is not said to be there.
func TestFlush_Fails(t *testing.T) {
	dir, w := t.TempDir(), newWords()
	p := start(t, dir, w, 1<<30)
	before := w.Load(filelog.Durable)
	p.add("a")
	p.Sync = func(int) error { return errors.New("i/o error") }
	if e, ok := errors.AsType[*driver.Error](p.Flush(p.Here())); !ok || e.Kind != driver.ErrUnavailable || e.Outcome != driver.Unknown {
		t.Errorf("a sync that failed: %v", e)
	}
	if w.Load(filelog.Durable) != before {
		t.Error("it is said to be on disk")
	}
}

// After a sync that failed the next one that succeeds says nothing of what the first was
// to put on disk: no process takes the log for durable again until it is replaced.
func TestFlush_AfterAFailure(t *testing.T) {
	dir, w := t.TempDir(), newWords()
	p, other := start(t, dir, w, 1<<30), start(t, dir, w, 1<<30)
	before := w.Load(filelog.Durable)
	p.add("a")
	works := p.Sync
	p.Sync = func(int) error { return errors.New("i/o error") }
	if p.Flush(p.Here()) == nil {
		t.Fatal("a sync that failed is not told")
	}
	p.Sync = works
	late := start(t, dir, w, 1<<30) // opened the file when its error had been told
	if err := other.ready(); err != nil {
		t.Fatal(err)
	}
	for _, q := range []*process{p, other, late} {
		if err := q.Flush(q.Here()); err == nil || w.Load(filelog.Durable) != before {
			t.Errorf("on disk up to %d after %d: %v", w.Load(filelog.Durable), before, err)
		}
	}
	generation := p.Here().Generation()
	other.add("b")
	if other.Here().Generation() != generation+1 {
		t.Error("the next change does not replace the log")
	}
	if err := p.ready(); err != nil {
		t.Fatal(err)
	}
	for _, q := range []*process{p, other} {
		if err := q.Flush(q.Here()); err != nil || filelog.Position(w.Load(filelog.Durable)) < q.Here() {
			t.Errorf("after the log was replaced: %v", err)
		}
	}
}
