package core_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/check"
	"github.com/holdfast-io/holdfast/internal/core/coretest/gen"
	"github.com/holdfast-io/holdfast/internal/core/coretest/script"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

var (
	budget = flag.Duration("core.budget", 0, "go on with new seeds for this long, over all property tests; 0: a fixed share")
	seed   = flag.Uint64("core.seed", 0, "play this seed only; 0: all")
)

// properties is how many tests share the budget.
const properties = 9

// seeds calls f for the fixed share of seeds, and then for as long as the
// budget lasts.
func seeds(t *testing.T, share uint64, f func(t *testing.T, seed uint64)) {
	if *seed != 0 {
		f(t, *seed)
		return
	}
	end := time.Now().Add(*budget / properties)
	n := uint64(1)
	for ; n <= share || *budget > 0 && time.Now().Before(end); n++ {
		if f(t, n); t.Failed() {
			t.Fatalf("seed %d failed; see it alone with -run %s -core.seed=%d", n, t.Name(), n)
		}
	}
	t.Logf("proof: %s: %d seeds", t.Name(), n-1)
}

// subject is a machine that takes decoded entries.
type subject struct {
	*core.Machine
	encoded []byte
}

func newSubject(c core.Config) *subject { return &subject{Machine: core.New(c)} }

func (s *subject) Apply(e twin.Entry) (_ twin.Output, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r) // so that the history can be shrunk
		}
	}()
	in := core.Entry{Kind: e.Kind, Now: e.Now, Seconds: e.Seconds, Revision: e.Revision, Renewals: e.Renewals}
	for i := range e.Frames {
		in.Frames = append(in.Frames, core.AppendFrame(nil, &e.Frames[i]))
	}
	s.encoded = core.AppendEntry(nil, &in)
	var out core.Output
	err = s.Machine.Apply(s.encoded, &out)
	clear(s.encoded) // whoever kept a part of it without copying will show
	return twin.Output{Replies: out.Replies, Renewed: out.Renewed, Pushes: out.Pushes, Events: out.Events}, err
}

// restored is a machine made from a snapshot of s, in chunks of about size.
func (s *subject) restored(size int) (*subject, error) {
	v := s.View()
	defer v.Close()
	r := core.NewRestorer()
	for {
		chunk, done := v.Next(nil, size)
		if err := r.Write(chunk); err != nil {
			return nil, err
		}
		if done {
			break
		}
	}
	m, err := r.Machine()
	return &subject{Machine: m}, err
}

// limitsOf draws the limits of a history: small budgets leave a rest. (Not where
// sessions outlive their deadline: which of the claims that such a session makes
// while it is being told of are still told is nobody's promise.)
func limitsOf(seed uint64) (core.Config, twin.Config) {
	r := rand.New(rand.NewPCG(seed, 7))
	c := core.Config{Revision: 1, Window: 1024, Budget: 10_000, Waiters: 10_000}
	if r.IntN(3) == 0 && !gen.New(seed).Taste.Policies {
		c.Budget = 1 + r.IntN(4)
	}
	if r.IntN(8) == 0 {
		c.Waiters = 1 + r.IntN(3)
	}
	if r.IntN(3) == 0 {
		c.Result = 105 + r.IntN(1000) // one key to a dozen
	}
	if r.IntN(6) == 0 {
		c.Sessions, c.Names, c.Keys, c.Holds = 1+r.IntN(4), 1+r.IntN(12), 1+r.IntN(4), 1+r.IntN(8)
	}
	return c, twinOf(c)
}

// twinOf is what the twin of a machine is made with.
func twinOf(c core.Config) twin.Config {
	return twin.Config{
		Revision: c.Revision, Window: c.Window, Budget: c.Budget, Waiters: c.Waiters, Result: c.Result,
		Sessions: c.Sessions, Names: c.Names, Keys: c.Keys, Holds: c.Holds,
	}
}

// history makes n entries of a seed; the twin tells the generator what tokens
// there are.
func history(seed uint64, n int) []twin.Entry {
	_, tc := limitsOf(seed)
	g, tw := gen.New(seed), twin.New(tc)
	var all []twin.Entry
	for range n {
		e := g.Next()
		g.Observe(tw.Apply(e))
		all = append(all, e)
	}
	return all
}

// TestTwin: machine and twin answer, push and tell the same, and the machine
// keeps every promise of package check.
func TestTwin(t *testing.T) {
	seeds(t, 1000, func(t *testing.T, seed uint64) {
		report(t, history(seed, 100), func(entries []twin.Entry) error { return sameAsTwin(seed, entries) })
	})
}

func sameAsTwin(seed uint64, entries []twin.Entry) error {
	mc, tc := limitsOf(seed)
	m, tw := newSubject(mc), twin.New(tc)
	k := check.Checker{Rest: mc.Budget < 100}
	for i, e := range entries {
		got, err := m.Apply(e)
		if err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		want := tw.Apply(e)
		if err := script.Compare(got, want); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if err := k.Entry(e, got); err != nil {
			return fmt.Errorf("entry %d: %w\n%s", i, err, script.Print(got))
		}
		if err := sameState(m, tw, e); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if i%16 != 0 {
			continue
		}
		if err := core.Invariants(m.Machine); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	if err := core.Invariants(m.Machine); err != nil {
		return err
	}
	return sameNames(m, tw)
}

// sameNames compares what Inspect tells of every name.
func sameNames(m *subject, tw *twin.Twin) error {
	for _, n := range tw.Names() {
		got, ok := inspectAll(m.Machine, n[0], n[1], func() int { return 0 }, func() {})
		want := tw.Inspect(n[0], n[1])
		onlyTwins(&got)
		if !ok || !reflect.DeepEqual(got, want) {
			return fmt.Errorf("inspect %s in %s: %v\n%+v\nwant:\n%+v", n[1], n[0], ok, got, want)
		}
	}
	var spaces []string
	for _, n := range tw.Names() {
		spaces = append(spaces, n[0])
	}
	slices.Sort(spaces)
	return samePages(m.Machine, slices.Compact(spaces)...)
}

// onlyTwins leaves of a resource what the twin knows too.
func onlyTwins(r *core.ResourceInfo) {
	claims := func(list []core.ClaimInfo) (out []core.ClaimInfo) {
		for _, c := range list {
			o := core.ClaimInfo{
				Name: c.Name, Kind: c.Kind, Session: c.Session, Seq: c.Seq, Mode: c.Mode, Weight: c.Weight, Token: c.Token,
				Reserved: c.Reserved, Upgrade: c.Upgrade, Revoked: c.Revoked,
			}
			if c.Token != 0 {
				o.Since = c.Since
			}
			out = append(out, o)
		}
		return out
	}
	o := core.ResourceInfo{
		Namespace: r.Namespace, Name: r.Name, Kind: r.Kind, Number: r.Number,
		Holders: claims(r.Holders), Waiters: claims(r.Waiters),
	}
	if r.Kind == core.Semaphore {
		o.Limit, o.Used = r.Limit, r.Used
	}
	*r = o
}

// sameState compares what can be asked: time, revision, what is due next, and
// the claim tables of the sessions that the entry was about.
func sameState(m *subject, tw *twin.Twin, e twin.Entry) error {
	due, ok := m.Due()
	want, some := tw.Due()
	late := some && (!ok || due > max(want, tw.Now())) // an early alarm is TestDue's concern
	if m.Now() != tw.Now() || m.Revision() != tw.Revision() || late {
		return fmt.Errorf("machine: now %d, revision %d, due %d %v; want %d, %d, %d %v",
			m.Now(), m.Revision(), due, ok, tw.Now(), tw.Revision(), want, some)
	}
	for _, f := range e.Frames {
		got, _ := m.Table(f.Session)
		for _, row := range got {
			if one := m.Row(f.Session, row.Seq); one != row {
				return fmt.Errorf("row %d of the table is %+v, alone %+v", row.Seq, row, one)
			}
		}
		if want := tw.Table(f.Session); tableRows(got) != tableRows(want) {
			return fmt.Errorf("table of %s:\n%swant:\n%s", script.Name(f.Session), tableRows(got), tableRows(want))
		}
	}
	return nil
}

// report shrinks a history that fails, and shows it as a script.
func report(t *testing.T, entries []twin.Entry, check func([]twin.Entry) error) {
	t.Helper()
	if check(entries) == nil {
		return
	}
	small := gen.Shrink(entries, func(e []twin.Entry) bool { return check(e) != nil })
	var story strings.Builder
	for _, e := range small {
		story.WriteString(script.Lines(e) + "\n")
	}
	t.Errorf("%v\nthe history that shows it:\n%s", check(small), story.String())
}

// TestRetries: whatever is sent twice is answered twice and done once. One
// machine sees each frame once, the other sees each again right after.
func TestRetries(t *testing.T) {
	seeds(t, 300, func(t *testing.T, seed uint64) {
		report(t, history(seed, 80), retriedOnce)
	})
}

func retriedOnce(entries []twin.Entry) error {
	once, twice := newSubject(core.Config{}), newSubject(core.Config{})
	for i, e := range entries {
		want, err := once.Apply(e)
		if err != nil {
			return err
		}
		got, err := twice.Apply(e)
		if err != nil {
			return err
		}
		if err := script.Compare(got, want); err != nil {
			return fmt.Errorf("entry %d is answered otherwise after retries before it: %w", i, err)
		}
		again, first := retryOf(e, want)
		out, err := twice.Apply(again)
		if err != nil {
			return err
		}
		if err := nothingNew(out, first); err != nil {
			return fmt.Errorf("entry %d, sent again: %w\n%s", i, err, script.Print(out))
		}
	}
	return nil
}

// retryOf is the entry once more, without the frames that were refused for a
// reason that may have gone by now.
func retryOf(e twin.Entry, out twin.Output) (again twin.Entry, first []core.Reply) {
	again.Now = e.Now
	for i, r := range out.Replies {
		passing := func(r core.Result) bool { return r.Code == core.CodeNoSession || r.Code == core.CodeWindow }
		if slices.ContainsFunc(r.Results, passing) {
			continue
		}
		f := e.Frames[i]
		f.Attempt += 1000
		again.Frames, first = append(again.Frames, f), append(first, r)
	}
	return again, first
}

// nothingNew checks the answers to a retry. A claim may have moved on, a number
// may have been forgotten, the session may have ended; all else is the same, and nothing happened.
func nothingNew(out twin.Output, first []core.Reply) error {
	script.Plain(&out)
	if len(out.Events) > 0 || len(out.Pushes) > 0 {
		return fmt.Errorf("a retry had an effect")
	}
	for i, r := range out.Replies {
		for j, got := range r.Results {
			want := first[i].Results[j]
			claim := want.Token != 0 || want.Code == core.CodeQueued
			over := got.Code == core.CodeForgotten || got.Code == core.CodeNoSession
			if want.Seq == 0 || claim || over {
				continue
			}
			if !reflect.DeepEqual(got, want) {
				return fmt.Errorf("the retry of %d is answered %+v after %+v", want.Seq, got, want)
			}
		}
	}
	return nil
}

// TestSnapshot: a machine restored from a snapshot, taken while the machine went
// on, and one that replays the whole log, are the same machine in everything
// that comes after, to the hash.
func TestSnapshot(t *testing.T) {
	seeds(t, 300, func(t *testing.T, seed uint64) {
		percent := int(seed * 31 % 100)
		report(t, history(seed, 80), func(e []twin.Entry) error { return sameAfterRestore(seed, e, len(e)*percent/100) })
	})
}

func sameAfterRestore(seed uint64, entries []twin.Entry, at int) error {
	c, _ := limitsOf(seed)
	m, replayed := newSubject(c), newSubject(c)
	if err := applyAll(m, entries[:at]); err != nil {
		return err
	}
	v, r := m.View(), core.NewRestorer()
	defer v.Close()
	outs, err := whileReading(m, v, r, entries[at:])
	if err != nil {
		return err
	}
	machine, err := r.Machine()
	if err != nil {
		return err
	}
	restored := &subject{Machine: machine}
	for i, e := range entries[at:] {
		got, err := restored.Apply(e)
		if err != nil {
			return err
		}
		if err := script.Compare(got, outs[i]); err != nil {
			return fmt.Errorf("entry %d, restored before %d: %w", at+i, at, err)
		}
	}
	if err := applyAll(replayed, entries); err != nil {
		return err
	}
	return equalMachines(m, restored, replayed)
}

// whileReading applies entries and reads the view piece by piece between them;
// the rest of it at the end.
func whileReading(m *subject, v *core.View, r *core.Restorer, entries []twin.Entry) ([]twin.Output, error) {
	var outs []twin.Output
	read := false
	next := func(size int) error {
		chunk, done := v.Next(nil, size)
		read = done
		return r.Write(chunk)
	}
	for _, e := range entries {
		if !read {
			if err := next(100); err != nil {
				return nil, err
			}
		}
		out, err := m.Apply(e)
		if err != nil {
			return nil, err
		}
		outs = append(outs, out)
	}
	for !read {
		if err := next(1 << 16); err != nil {
			return nil, err
		}
	}
	return outs, nil
}

func applyAll(m *subject, entries []twin.Entry) error {
	for _, e := range entries {
		if _, err := m.Apply(e); err != nil {
			return err
		}
	}
	return nil
}

// equalMachines compares machines by hash, revision, time and what is due.
func equalMachines(m *subject, others ...*subject) error {
	for i, o := range others {
		d1, ok1 := m.Due()
		d2, ok2 := o.Due()
		if m.Hash() != o.Hash() || m.Revision() != o.Revision() || m.Now() != o.Now() || d1 != d2 || ok1 != ok2 {
			return fmt.Errorf("machine %d: hash %x revision %d now %d due %d; want %x, %d, %d, %d",
				i, o.Hash(), o.Revision(), o.Now(), d2, m.Hash(), m.Revision(), m.Now(), d1)
		}
	}
	return nil
}

func (s *subject) snapshot() (all []byte) {
	v := s.View()
	defer v.Close()
	for done := false; !done; {
		var chunk []byte
		chunk, done = v.Next(nil, 1<<16)
		all = append(all, chunk...)
	}
	return all
}

// TestSameBytes: the snapshot of a restored machine is the snapshot that it was
// restored from. Nodes compare their states by it (the state check of §7).
func TestSameBytes(t *testing.T) {
	seeds(t, 100, func(t *testing.T, seed uint64) {
		report(t, history(seed, 80), func(e []twin.Entry) error { return sameBytes(seed, e) })
	})
}

func sameBytes(seed uint64, entries []twin.Entry) error {
	c, _ := limitsOf(seed)
	m := newSubject(c)
	if err := applyAll(m, entries); err != nil {
		return err
	}
	restored, err := m.restored(1 << 16)
	if err == nil && !slices.Equal(m.snapshot(), restored.snapshot()) {
		err = fmt.Errorf("the restored machine has another snapshot")
	}
	return err
}

// TestDue: a stamp just before what is due changes nothing, and a stamp at it
// always gets something done.
func TestDue(t *testing.T) {
	seeds(t, 300, func(t *testing.T, seed uint64) {
		report(t, history(seed, 80), func(e []twin.Entry) error { return dueIsHonest(seed, e) })
	})
}

func dueIsHonest(seed uint64, entries []twin.Entry) error {
	c, _ := limitsOf(seed)
	m := newSubject(c)
	for i, e := range entries {
		for idle := 0; ; {
			due, ok := m.Due()
			if !ok || due > e.Now {
				break
			}
			before := core.Untold(m.Machine)
			done, err := stampAt(m, due)
			if idle++; done || core.Untold(m.Machine) != before {
				idle = 0
			}
			if err != nil || idle > 1 { // one step of a small budget may do nothing that shows
				return fmt.Errorf("before entry %d: due %d, stamped %d times for nothing: %v", i, due, idle, err)
			}
		}
		if _, err := m.Apply(e); err != nil {
			return err
		}
	}
	return nil
}

// stampAt stamps just before due and at it, and says whether that did anything.
func stampAt(m *subject, due int64) (bool, error) {
	if before := due - 1; before > m.Now() {
		out, err := m.Apply(twin.Entry{Now: before})
		if err != nil || len(out.Events)+len(out.Pushes) > 0 {
			return true, fmt.Errorf("something ended before its time: %v\n%s", err, script.Print(out))
		}
	}
	out, err := m.Apply(twin.Entry{Now: due})
	next, ok := m.Due()
	return len(out.Events) > 0 || !ok || next > due, err
}

// TestHash: the hash moves with results and with events, each for itself.
func TestHash(t *testing.T) {
	open := func(owner string) twin.Entry {
		return twin.Entry{Frames: []core.Frame{{Session: script.ID("A"), Commands: []core.Command{{Op: core.OpOpen, TTL: 1e9, Owner: owner}}}}}
	}
	load := func(seq uint64, name string) twin.Entry {
		return twin.Entry{Frames: []core.Frame{{Session: script.ID("A"), Commands: []core.Command{
			{Op: core.OpCount, Seq: seq, Name: name, Count: core.CountLoad}}}}}
	}
	hash := func(entries ...twin.Entry) uint64 {
		m := newSubject(core.Config{})
		if err := applyAll(m, entries); err != nil {
			t.Fatal(err)
		}
		return m.Hash()
	}
	seen := map[uint64]string{}
	for what, h := range map[string]uint64{
		"nothing": hash(), "a session": hash(open("x")), "another owner, told by the event only": hash(open("y")),
		"a result without event": hash(open("x"), load(1, "n")), "another result": hash(open("x"), load(1, "")),
		"an event without result": hash(open("x"), twin.Entry{Now: 1e9}),
	} {
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have the same hash", what, other)
		}
		seen[h] = what
	}
}

// TestNoDeadlock: clients that hold nothing else while they wait, and clients
// that take names in order, all get what they wait for in the end.
func TestNoDeadlock(t *testing.T) {
	seeds(t, 300, func(t *testing.T, seed uint64) {
		if err := gen.Crowd(seed, newSubject(core.Config{}).Apply); err != nil {
			t.Errorf("%v", err)
		}
	})
}
