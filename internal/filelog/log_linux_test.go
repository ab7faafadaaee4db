package filelog_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/filelog"
)

// words are shared words in memory. With kill set, the process that makes its last
// store ends before it: the store panics with errKilled. With broken set, no swap
// succeeds, and one that is tried for ever panics.
type words struct {
	w       [4]atomic.Uint64
	kill    int
	broken  error
	refused int
}

var errKilled = errors.New("killed")

func newWords() *words {
	w := &words{}
	w.w[filelog.End].Store(uint64(filelog.At(1, 0)))
	return w
}

func (w *words) Load(i filelog.Word) uint64 { return w.w[i].Load() }
func (w *words) Err() error                 { return w.broken }

func (w *words) Store(i filelog.Word, v uint64) {
	if w.kill > 0 {
		if w.kill--; w.kill == 0 {
			panic(errKilled)
		}
	}
	w.w[i].Store(v)
}

func (w *words) Swap(i filelog.Word, old, v uint64) bool {
	if w.broken == nil {
		return w.w[i].CompareAndSwap(old, v)
	}
	if w.refused++; w.refused > 100 {
		panic("a swap is tried again and again")
	}
	return false
}

// process is one that uses the log; its state is the bodies of all records.
type process struct {
	*filelog.Log
	sync.Mutex
	t      testing.TB
	bodies []string
	temp   func() error // before a new file is made
	synced int
}

const kindLine = 1

func (p *process) Apply(r filelog.Record) error {
	if r.Kind != kindLine {
		return fmt.Errorf("a record of type %d", r.Kind)
	}
	p.bodies = append(p.bodies, string(r.Body))
	return nil
}

func (p *process) Snapshot(add func(filelog.Record)) {
	for _, b := range p.bodies {
		add(filelog.Record{Kind: kindLine, Body: []byte(b)})
	}
}

func (p *process) Restore(records iter.Seq2[filelog.Record, error]) error {
	var bodies []string
	for r, err := range records {
		if err != nil {
			return err
		}
		bodies = append(bodies, string(r.Body))
	}
	p.bodies = bodies
	return nil
}

// newProcess has not read anything yet.
func newProcess(t testing.TB, dir string, w *words, compactAt uint64) *process {
	p := &process{t: t, temp: func() error { return nil }}
	p.Log = filelog.New(filelog.Config{
		Dir: dir, Shared: w, State: p, Guard: &p.Mutex, CompactAt: compactAt,
		Sync: func(int) error { p.synced++; return nil },
		Temp: func() (*os.File, error) {
			if err := p.temp(); err != nil {
				return nil, err
			}
			return os.CreateTemp(dir, filelog.Name+"-new-")
		},
	})
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// start is newProcess that has read the log, which it makes if there is none.
func start(t testing.TB, dir string, w *words, compactAt uint64) *process {
	t.Helper()
	p := newProcess(t, dir, w, compactAt)
	if err := errors.Join(p.Make(), p.Settle(), p.Load()); err != nil {
		t.Fatal(err)
	}
	return p
}

// ready is what a process does after it has got the lock between processes.
func (p *process) ready() error {
	if err := p.Settle(); err != nil {
		return err
	}
	err := p.CatchUp()
	if err == filelog.ErrBehind {
		err = p.Load()
	}
	if err != nil {
		return err
	}
	return p.Trim()
}

// add appends a body, as the only writer.
func (p *process) add(body string) {
	p.t.Helper()
	if err := p.ready(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.Append(filelog.Record{Kind: kindLine, Body: []byte(body)}); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.Compact(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) sees(want []string) {
	p.t.Helper()
	if !slices.Equal(p.bodies, want) {
		p.t.Fatalf("%d records were applied, %q last; want %d", len(p.bodies), tail(p.bodies), len(want))
	}
}

func tail(list []string) []string { return list[max(0, len(list)-3):] }

// Processes that take turns apply all records in one order, over many replacements
// of the log, and so does one that comes later.
func TestProcessesShareALog(t *testing.T) {
	dir, w := t.TempDir(), newWords()
	var ps []*process
	for range 4 {
		ps = append(ps, start(t, dir, w, 4<<10))
	}
	var want []string
	for i := range 5000 {
		body := fmt.Sprint("record ", i)
		ps[rand.IntN(len(ps))].add(body)
		want = append(want, body)
	}
	if n := filelog.Position(w.Load(filelog.End)).Generation(); n < 4 {
		t.Errorf("after 5000 records the log is number %d", n)
	}
	for _, p := range append(ps, start(t, dir, w, 4<<10)) {
		if err := p.ready(); err != nil {
			t.Fatal(err)
		}
		p.sees(want)
	}
}

// A process that has written nothing yet does not replace a log that is short beside what
// it began with.
func TestNewProcessReplacesNothing(t *testing.T) {
	dir, w := t.TempDir(), newWords()
	p := start(t, dir, w, 1000)
	for p.Here().Generation() == 1 {
		p.add("a record of some length")
	}
	for i := range 10 {
		start(t, dir, w, 1000).add(fmt.Sprint(i))
	}
	if n := filelog.Position(w.Load(filelog.End)).Generation(); n != 2 {
		t.Errorf("ten processes with a record each made the log number %d", n)
	}
}

// A process follows one replacement without the lock between processes, and says so
// when it has missed more.
func TestBehind(t *testing.T) {
	dir, w := t.TempDir(), newWords()
	writer, reader := start(t, dir, w, 1), start(t, dir, w, 1)
	writer.add("a")
	if err := reader.CatchUp(); err != nil {
		t.Fatal(err)
	}
	reader.sees([]string{"a"})
	for len(writer.bodies) < 100 {
		writer.add("b")
	}
	if err := reader.CatchUp(); err != filelog.ErrBehind {
		t.Fatalf("many replacements: %v", err)
	}
	if err := reader.Load(); err != nil {
		t.Fatal(err)
	}
	reader.sees(writer.bodies)
}

// A writer that is killed while it writes a record, after any byte of it, leaves
// nothing that counts.
func TestKilledWriter_EveryByte(t *testing.T) {
	dir, w := t.TempDir(), newWords()
	p := start(t, dir, w, 1<<30)
	p.add("first")
	before := read(t, dir)
	p.add("second")
	record := read(t, dir)[len(before):]
	want := slices.Clone(p.bodies)
	for n := range len(record) + 1 {
		leave(t, dir, record[:n])
		next := start(t, dir, w, 1<<30)
		next.sees(want)
		next.add(fmt.Sprint("after ", n))
		want = append(want, fmt.Sprint("after ", n))
		if err := p.ready(); err != nil {
			t.Fatal(err)
		}
		p.sees(want)
	}
}

// leave writes bytes that never count at the end of the log.
func leave(t testing.TB, dir, bytes string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, filelog.Name), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(bytes)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// What a killed writer left is no record after a power loss either, where a shorter
// one was written in its place and the rest of it looks like the next.
func TestKilledWriter_LeavesNoRecord(t *testing.T) {
	dir, w := t.TempDir(), newWords()
	p := start(t, dir, w, 1<<30)
	p.add("first")
	before := read(t, dir)
	p.add("record")
	record := read(t, dir)[len(before):]
	leave(t, dir, strings.Repeat("x", len(record))+record)
	p.add("second")
	again := newProcess(t, dir, w, 1<<30)
	if err := again.Salvage(); err != nil {
		t.Fatal(err)
	}
	again.sees([]string{"first", "record", "second"})
}

// A process that is killed before any store of a shared word loses at most the record
// that it was writing, and the next one goes on: also when the log was being replaced.
func TestKilledWriter_EveryStore(t *testing.T) {
	for kill := 1; ; kill++ {
		dir, w := t.TempDir(), newWords()
		first, witness := start(t, dir, w, 200), start(t, dir, w, 200)
		w.kill = kill
		sent, killed := addUntilKilled(first, 60)
		w.kill = 0
		for _, p := range []*process{start(t, dir, w, 200), witness} {
			if err := p.ready(); err != nil {
				t.Fatalf("killed before store %d: %v", kill, err)
			}
			if n := len(p.bodies); n != len(sent) && n != len(sent)-1 {
				t.Fatalf("killed before store %d: %d records were applied, %d were sent", kill, n, len(sent))
			}
			p.sees(sent[:len(p.bodies)])
			sent = append(slices.Clone(p.bodies), "after")
			p.add("after")
		}
		if !killed {
			return
		}
	}
}

// addUntilKilled adds n records, and returns those that were sent until the process
// was killed.
func addUntilKilled(p *process, n int) (sent []string, killed bool) {
	defer func() {
		if r := recover(); r != nil {
			if killed = r == error(errKilled); !killed {
				panic(r)
			}
		}
	}()
	for i := range n {
		sent = append(sent, fmt.Sprint("record ", i))
		p.add(sent[i])
	}
	return sent, false
}

// A replacement that fails, or whose process is killed before the new file is there,
// leaves the log as it was.
func TestReplacementFails(t *testing.T) {
	dir, w := t.TempDir(), newWords()
	p, witness := start(t, dir, w, 1), start(t, dir, w, 1)
	full := errors.New("no space left")
	p.temp = func() error { return full }
	var want []string
	for i := range 10 {
		if err := p.ready(); err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprint("record ", i, strings.Repeat(" of some length", 20)) // much beside an empty snapshot
		if err := p.Append(filelog.Record{Kind: kindLine, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
		want = append(want, body)
		if i%2 == 1 {
			p.temp = func() error { panic(errKilled) }
		}
		func() {
			defer func() { _ = recover() }()
			if replaced, err := p.Compact(); replaced || !errors.Is(err, full) {
				t.Errorf("the log was replaced: %v, %v", replaced, err)
			}
		}()
		if err := witness.ready(); err != nil {
			t.Fatal(err)
		}
		witness.sees(want)
	}
}

// A first log that was put into its place by a process that was killed before it could
// say so is taken over.
func TestMake_KilledBeforeItCounts(t *testing.T) {
	dir, w := t.TempDir(), newWords()
	start(t, dir, w, 1<<30)
	w.Store(filelog.End, uint64(filelog.At(1, 0)))
	p := start(t, dir, w, 1<<30)
	p.add("a")
	p.sees([]string{"a"})
}

// A record that no reader would take is refused before anything is written, and a
// snapshot that would have one does not replace the log.
func TestTooLarge(t *testing.T) {
	dir, w := t.TempDir(), newWords()
	p := start(t, dir, w, 1<<30)
	long := strings.Repeat("a", 1000)
	p.add(long)
	before, end := read(t, dir), p.End()
	err := p.Append(filelog.Record{Kind: kindLine, Body: make([]byte, filelog.MaxRecord+1)})
	if !errors.Is(err, driver.ErrUnavailable) || p.End() != end || read(t, dir) != before {
		t.Errorf("a record that is too large: %v", err)
	}
	p.bodies = append(p.bodies, strings.Repeat("x", filelog.MaxRecord+1))
	if err := p.Append(filelog.Record{Kind: kindLine, Body: []byte("b")}); err != nil {
		t.Fatal(err)
	}
	p.CompactAt = 1
	if replaced, err := p.Compact(); replaced || err == nil {
		t.Errorf("a snapshot that cannot be read: %v, %v", replaced, err)
	}
	start(t, dir, w, 1<<30).sees([]string{long, "b"})
}

func read(t testing.TB, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, filelog.Name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
