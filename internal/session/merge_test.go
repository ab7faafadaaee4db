package session_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

func mergingDuo(t *testing.T) *duo {
	d := &duo{rig: newRig(t, session.Config{Merge: true}), m: core.New(core.Config{})}
	d.take(d.s.Connect(0))
	d.arrive(d.flush()...)
	return d
}

func (r *rig) count(name string, op core.CountOp, a int64) *session.Call {
	return r.submit(core.Command{Op: core.OpCount, Name: name, Count: op, A: uint64(a)})
}

func (d *duo) value(name string, unsigned bool) uint64 {
	return d.m.Read("", &core.Command{Op: core.OpCount, Name: name, Unsigned: unsigned}).Number
}

// Adds that travel together are one command, and each gets a value as if it had
// come alone.
func TestAddsTravelAsOne(t *testing.T) {
	d := mergingDuo(t)
	calls := []*session.Call{d.count("n", core.CountAdd, 5), d.count("other", core.CountAdd, 1), d.count("n", core.CountAdd, 7), d.count("n", core.CountAdd, 1)}
	sent := d.flush()
	if got := d.commands(); len(got) != 2 || got[0].Count != core.CountAddAll || got[0].A != 13 {
		t.Fatalf("sent %+v", got)
	}
	d.arrive(sent...)
	var got []uint64
	for _, c := range calls {
		got = append(got, c.Result.Number)
	}
	if !slices.Equal(got, []uint64{5, 1, 12, 13}) || len(d.done) != 4 {
		t.Errorf("got %v, %d done", got, len(d.done))
	}
	if c := d.count("n", core.CountAdd, 1); d.flush() != nil && c.Seq() != 5 || d.frame[len(d.frame)-1].Mark != 5 {
		t.Errorf("the mark is %d after four answers", d.frame[len(d.frame)-1].Mark)
	}
}

// What was sent together is the same command when it is sent again, whatever has
// come since: another sum under the same number would be lost.
func TestMergedAddsAreSentAgainAsTheyWere(t *testing.T) {
	for _, first := range [][]int64{{5}, {5, 7}} {
		d := mergingDuo(t)
		var calls []*session.Call
		for _, n := range first {
			calls = append(calls, d.count("n", core.CountAdd, n))
		}
		(&round{d: d}).applied(d.flush())
		calls = append(calls, d.count("n", core.CountAdd, 100))
		d.arrive(d.reconnect()...)
		sum := uint64(0)
		for i, n := range append(first, 100) {
			if sum += uint64(n); calls[i].Outcome != session.Answered || calls[i].Result.Number != sum {
				t.Errorf("%v: call %d got %d, want %d", first, i, calls[i].Result.Number, sum)
			}
		}
		if got := d.value("n", false); got != sum || len(d.commands()) != 2 {
			t.Errorf("%v: the counter is %d, want %d; sent again as %+v", first, got, sum, d.commands())
		}
	}
}

// One that nobody waits for any more is counted all the same, and so are those
// that travel with it.
func TestAbandonedAddsTravelOn(t *testing.T) {
	for i := range 2 {
		d := mergingDuo(t)
		calls := []*session.Call{d.count("n", core.CountAdd, 5), d.count("n", core.CountAdd, 7)}
		sent := d.flush()
		if out, _ := d.s.Abandon(d.now, calls[i]); out != session.Unknown {
			t.Errorf("abandoning number %d: outcome %d", i, out)
		}
		d.arrive(sent...)
		if len(d.done) != 1 || d.done[0] != calls[1-i] || d.value("n", false) != 12 {
			t.Errorf("%d done, the counter is %d", len(d.done), d.value("n", false))
		}
	}
}

// A server that denies a frame, or does not open the session, has done none of
// what travelled in it.
func TestDeniedTogether(t *testing.T) {
	d := mergingDuo(t)
	d.count("n", core.CountAdd, 5)
	d.count("n", core.CountAdd, 7)
	d.flush()
	d.receive(session.Message{Kind: session.KindRefused, Attempt: d.last().Attempt, Refusal: session.RefusedDenied, Code: core.CodePermission})
	r := newRig(t, session.Config{Merge: true})
	r.take(r.s.Connect(0))
	r.count("n", core.CountAdd, 5)
	r.count("n", core.CountAdd, 7)
	r.flush()
	r.table(false)
	r.flush()
	r.reply(r.last().Attempt, 0, 0, core.Result{Code: core.CodeExhausted}, core.Result{Seq: 1, Code: core.CodeNoSession})
	for _, done := range [][]*session.Call{d.done, r.done} {
		if len(done) != 2 || done[0].Outcome != session.NotDone || done[1].Outcome != session.NotDone {
			t.Errorf("%d done: %+v", len(done), done)
		}
	}
}

// solo is a counter of the model: what one command after the other makes of it.
type solo struct {
	exists, unsigned bool
	value            uint64
}

// do is one command by itself.
func (s solo) do(c *core.Command) (solo, core.Result) {
	if c.Op == core.OpDelete && !s.exists {
		return s, core.Result{Code: core.CodeNotExist}
	}
	if c.Op == core.OpDelete {
		return solo{}, core.Result{}
	}
	if s.exists && s.unsigned != c.Unsigned {
		return s, core.Result{Code: core.CodeConflict}
	}
	switch c.Count {
	case core.CountAdd:
		s = solo{true, c.Unsigned, clamped(s.value, c.A, c.Unsigned)}
	case core.CountStore:
		s = solo{true, c.Unsigned, c.A}
	}
	return s, core.Result{Number: s.value}
}

func clamped(a, b uint64, unsigned bool) uint64 {
	if unsigned {
		sum := new(big.Int).Add(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
		if !sum.IsUint64() {
			return math.MaxUint64
		}
		return sum.Uint64()
	}
	sum := new(big.Int).Add(big.NewInt(int64(a)), big.NewInt(int64(b)))
	switch {
	case sum.IsInt64():
		return uint64(sum.Int64())
	case sum.Sign() > 0:
		return math.MaxInt64
	default:
		return 1 << 63
	}
}

// order looks for an order in which the calls, one after the other, have the
// answers that they got and leave the counter at end.
func order(s solo, calls []*session.Call, ignored map[*session.Call]bool, end uint64) bool {
	if len(calls) == 0 {
		return s.value == end
	}
	for i, c := range calls {
		next, want := s.do(&c.Command)
		if !ignored[c] && (want.Code != c.Result.Code || want.Code == core.CodeOK && c.Command.Op == core.OpCount && want.Number != c.Result.Number) {
			continue
		}
		rest := slices.Delete(slices.Clone(calls), i, i+1)
		if order(next, rest, ignored, end) {
			return true
		}
	}
	return false
}

var amounts = []uint64{0, 1, 2, 3, math.MaxInt64, math.MaxInt64 - 2, 1 << 63, 1<<63 + 1, math.MaxUint64, math.MaxUint64 - 1}

func randomCount(rnd *rand.Rand) core.Command {
	c := core.Command{Op: core.OpCount, Name: "signed", Count: core.CountAdd, A: amounts[rnd.IntN(len(amounts))], Unsigned: rnd.IntN(20) == 0}
	if rnd.IntN(2) == 0 {
		c.Name, c.Unsigned = "unsigned", !c.Unsigned
	}
	switch rnd.IntN(12) {
	case 0:
		c.Count, c.A = core.CountLoad, 0
	case 1:
		c.Count = core.CountStore
	case 2:
		return core.Command{Op: core.OpDelete, Name: c.Name, Kind: core.Counter}
	}
	return c
}

// TestMergedLikeAlone compares random Adds, near the ends of the range and among
// other commands, with a twin that does one after the other: whatever is lost or
// repeated on the way, each answer is one that the command could have got alone,
// and everything was done exactly once.
func TestMergedLikeAlone(t *testing.T) {
	var merged, refused int
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		d := mergingDuo(t)
		state := map[string]solo{}
		for range 6 {
			round := newRound(d, rnd)
			round.run()
			merged, refused = merged+round.merged, refused+round.refused
			for _, name := range []string{"signed", "unsigned"} {
				now, known := d.m.Inspect("default", name)
				end := now.Number
				if !order(state[name], round.calls[name], round.ignored, end) {
					t.Fatalf("seed %d: no order of %s gives these answers from %+v to %d", seed, told(round.calls[name]), state[name], end)
				}
				state[name] = solo{known, now.Unsigned, end}
			}
		}
	}
	if merged < 1000 || refused < 100 {
		t.Errorf("only %d were merged and %d refused: the test shows nothing", merged, refused)
	}
}

func told(calls []*session.Call) (text string) {
	for _, c := range calls {
		text += fmt.Sprintf("%d/%d(%d) = %d/%d; ", c.Command.Op, c.Command.Count, int64(c.Command.A), c.Result.Code, int64(c.Result.Number))
	}
	return text
}

// round is some commands at a time, carried over a bad link until all are
// answered.
type round struct {
	d               *duo
	rnd             *rand.Rand
	calls           map[string][]*session.Call
	ignored         map[*session.Call]bool
	merged, refused int
}

func newRound(d *duo, rnd *rand.Rand) *round {
	r := &round{d: d, rnd: rnd, calls: map[string][]*session.Call{}, ignored: map[*session.Call]bool{}}
	d.done = nil
	for range 1 + rnd.IntN(6) {
		r.submit()
	}
	return r
}

func (r *round) submit() {
	c := randomCount(r.rnd)
	r.calls[c.Name] = append(r.calls[c.Name], r.d.submit(c))
}

func (r *round) run() {
	waits := func() int { return len(r.calls["signed"]) + len(r.calls["unsigned"]) - len(r.ignored) - len(r.d.done) }
	for tries := 0; waits() > 0; tries++ {
		if tries > 100 {
			r.d.t.Fatal("not answered")
		}
		r.step(r.d.flush(), tries < 3)
	}
	for r.d.s.Wake() <= r.d.now { // what nobody waits for
		r.step(r.d.flush(), false)
	}
}

// step lets messages arrive, or not; bad: things may go wrong.
func (r *round) step(sent []session.Message, bad bool) {
	sent = slices.Clone(sent)
	for _, m := range sent {
		r.look(m)
	}
	switch n := r.rnd.IntN(6); {
	case !bad || n > 2:
		r.d.arrive(sent...)
	case n > 0:
		r.applied(sent)
		r.cut()
	default:
		r.cut()
	}
	if bad && r.rnd.IntN(4) == 0 {
		r.submit()
	}
}

// applied lets frames arrive whose answers are lost.
func (r *round) applied(sent []session.Message) {
	e := core.Entry{Now: sec(500) + r.d.now}
	for _, m := range sent {
		if m.Kind == session.KindFrame {
			e.Frames = append(e.Frames, m.Body)
		}
	}
	if err := r.d.m.Apply(core.AppendEntry(nil, &e), &core.Output{}); err != nil {
		r.d.t.Fatal(err)
	}
}

// cut moves to another stream; before it somebody may give up.
func (r *round) cut() {
	list := r.calls["signed"]
	if len(list) > 0 && r.rnd.IntN(3) == 0 {
		if c := list[r.rnd.IntN(len(list))]; !slices.Contains(r.d.done, c) && !r.ignored[c] {
			if out, _ := r.d.s.Abandon(r.d.now, c); out == session.NotDone {
				r.calls["signed"] = slices.DeleteFunc(list, func(x *session.Call) bool { return x == c })
			} else {
				r.ignored[c] = true
			}
		}
	}
	if r.rnd.IntN(3) == 0 {
		r.submit()
	}
	r.d.arrive(r.d.reconnect()...)
}

// look counts what was merged and what had to part.
func (r *round) look(m session.Message) {
	var f core.Frame
	if m.Kind != session.KindFrame || core.DecodeFrame(m.Body, &f) != nil {
		return
	}
	for i := range f.Commands {
		c := &f.Commands[i]
		if c.Count != core.CountAddAll {
			continue
		}
		r.merged++
		sum := clamped(r.d.value(c.Name, c.Unsigned), c.A, c.Unsigned)
		if sum-r.d.value(c.Name, c.Unsigned) != c.A {
			r.refused++
		}
	}
}
