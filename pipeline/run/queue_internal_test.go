package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/memhold"
	"github.com/holdfast-io/holdfast/pipeline"
)

// clocked is Pipelines with a clock that a test sets forward.
type clocked struct {
	*Pipelines
	t     *testing.T
	s     *holdfast.Space
	later atomic.Int64
}

func newClocked(t *testing.T) *clocked {
	t.Helper()
	c := &clocked{t: t, s: memhold.Open()}
	t.Cleanup(func() { c.s.Close() })
	var err error
	c.Pipelines, err = New(Config{Space: c.s, Runner: none{}, Now: func() time.Time { return time.Now().Add(time.Duration(c.later.Load())) }})
	c.ok(err)
	return c
}

func (c *clocked) ok(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// run submits a run of a pipeline with one place.
func (c *clocked) run(name string) *view {
	c.t.Helper()
	r, err := c.Submit(c.t.Context(), Submission{Definition: &pipeline.Definition{Name: name, Places: 1, Phases: []pipeline.Phase{pipeline.NewPhase("a", "make")}}})
	c.ok(err)
	v, err := c.load(c.t.Context(), r)
	c.ok(err)
	return v
}

// lead has this program run a run, which does not go on.
func (c *clocked) lead(r Ref) *holdfast.Leadership {
	c.t.Helper()
	l, err := c.s.Election(r.election()).Campaign(c.t.Context(), nil)
	c.ok(err)
	return l
}

// Runs before one that wait without a runner are passed over: not one that has just been
// submitted, nor any behind the first that has a runner, and clocks that differ by hours
// hold up nobody.
func TestAbandoned(t *testing.T) {
	for _, later := range []time.Duration{time.Minute, -time.Hour} {
		c := newClocked(t)
		var all []*view
		for range 40 {
			all = append(all, c.run("p"))
		}
		passed := func(v *view) (n int) {
			q, err := c.loadQueue(t.Context(), "p")
			c.ok(err)
			return len(slices.Collect(maps.Keys(c.abandoned(t.Context(), v, q))))
		}
		last := all[len(all)-1]
		if n := passed(last); n != 0 {
			t.Errorf("%d runs that were just submitted are passed over", n)
		}
		c.later.Store(int64(later))
		if n := passed(last); n != 39 {
			t.Errorf("after %s %d of 39 runs without a runner are passed over", later, n)
		}
		defer c.lead(all[20].Ref).Resign()
		if n := passed(last); n != 20 {
			t.Errorf("after %s %d runs are passed over before the first that has a runner; want 20", later, n)
		}
		if n := passed(all[5]); n != 5 {
			t.Errorf("after %s %d runs are passed over before the sixth", later, n)
		}
	}
}

// full is a queue that is full, with a runner of the first run.
func (c *clocked) full() (first *view, submit func() error) {
	c.t.Helper()
	first = c.run("p")
	for range MaxRuns - 1 {
		c.run("p")
	}
	return first, func() error {
		_, err := c.Submit(c.t.Context(), Submission{Definition: first.Definition})
		return err
	}
}

// A full queue takes a run again when some of it have been seen without a runner for long;
// those that have one stay.
func TestSubmit_MakesRoom(t *testing.T) {
	c := newClocked(t)
	first, submit := c.full()
	defer c.lead(first.Ref).Resign()
	for _, later := range []time.Duration{2 * time.Hour, 2*time.Hour + lostAfter/2} {
		c.later.Store(int64(later))
		if err := submit(); !errors.Is(err, holdfast.ErrExhausted) {
			t.Errorf("after %s: %v", later, err)
		}
	}
	c.later.Store(int64(2*time.Hour + lostAfter))
	c.ok(submit())
	q, err := c.loadQueue(t.Context(), "p")
	c.ok(err)
	if n := len(q.Runs); n != MaxRuns-maxLost+1 || q.find(first.ID) != 0 {
		t.Errorf("%d runs are left, the first at %d", n, q.find(first.ID))
	}
	v, err := c.load(t.Context(), Ref{"p", "2"})
	c.ok(err)
	if v.State.Status != pipeline.Cancelled || v.State.Reason != "no program ran it, and the queue was full" {
		t.Errorf("the second is %+v", v.State)
	}
}

// A run with a runner that is away for a moment stays, however long ago it joined, and
// whichever clock looks: at the moment of one submit, and at that of a later one, too, if it
// was back between them, though no submit has seen that.
func TestSubmit_RunnerAwayForAMoment(t *testing.T) {
	c := newClocked(t)
	first, submit := c.full()
	stays := func(when string) {
		t.Helper()
		v, err := c.load(t.Context(), first.Ref)
		c.ok(err)
		if v.State.Status.Ended() {
			t.Errorf("%s: it was cancelled: %+v", when, v.State)
		}
	}
	for _, later := range []time.Duration{2 * time.Hour, 2*time.Hour + lostAfter/2, time.Hour} {
		c.later.Store(int64(later))
		if err := submit(); !errors.Is(err, holdfast.ErrExhausted) {
			t.Errorf("after %s: %v", later, err)
		}
		stays(fmt.Sprint("away after ", later))
	}
	l := c.lead(first.Ref)
	ctx, cancel := context.WithCancel(t.Context())
	a := &active{p: c.Pipelines, view: first, l: l, ctx: ctx, wake: make(chan struct{}, 1), task: func() {}, until: stopped(), recheck: stopped()}
	q, err := c.loadQueue(t.Context(), "p")
	c.ok(err)
	q.Runs[1].Started = true // the place is taken
	c.ok(c.keepQueue(t.Context(), "p", q))
	c.ok(a.queueTurn())
	cancel()
	c.ok(l.Resign())
	c.later.Store(int64(time.Hour + lostAfter))
	c.ok(submit())
	stays("back for a moment")
}

// A run that an earlier version has made, with a name that is refused now, is listed, run and
// cancelled as any other.
func TestNamesOfBefore(t *testing.T) {
	c := newClocked(t)
	ctx := t.Context()
	d := &pipeline.Definition{Name: `p"\`, Places: 1, Phases: []pipeline.Phase{pipeline.NewPhase("a", "make")}}
	var refs []Ref
	for _, id := range []string{`"1"`, `\2`} {
		s := Submission{Definition: d, ID: id}
		if _, err := c.Submit(ctx, s); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("the name %s is not refused any more: %v", id, err)
		}
		e := pipeline.Event{Kind: pipeline.Submitted, At: c.now()}
		state, effects, err := d.Step(pipeline.State{}, e)
		c.ok(err)
		v := &view{plan: plan{d, nil}, record: record{State: state, Seq: 1}}
		_, err = c.join(ctx, v, &s, &e, effects)
		c.ok(err)
		refs = append(refs, v.Ref)
	}
	var listed []Ref
	for rep, err := range c.List(ctx, d.Name) {
		c.ok(err)
		listed = append(listed, rep.Ref)
	}
	if !slices.Equal(listed, refs) {
		t.Errorf("listed %q; want %q", listed, refs)
	}
	parsed, err := ParseRef(refs[0].String())
	c.ok(err)
	c.ok(c.Cancel(ctx, parsed, "not wanted"))
	if state, err := c.Run(ctx, refs[1]); err != nil || !state.Status.Ended() {
		t.Errorf("it is %+v, %v", state, err)
	}
}

// A list has every run once, in order, with its runner, however many pages it takes.
func TestList(t *testing.T) {
	c := newClocked(t)
	for range 2*listedAtOnce + 1 {
		c.run("p")
	}
	c.ok(c.Cancel(t.Context(), Ref{"p", "100"}, "not wanted"))
	defer c.lead(Ref{"p", "17"}).Resign()
	var ids []string
	for rep, err := range c.List(t.Context(), "p") {
		c.ok(err)
		ids = append(ids, rep.ID)
		if (rep.Runner != "") != (rep.ID == "17") || (rep.State.Status == pipeline.Cancelled) != (rep.ID == "100") {
			t.Errorf("%+v", rep)
		}
	}
	if len(ids) != 2*listedAtOnce+1 || !slices.IsSorted(ids) {
		t.Errorf("listed %q", ids)
	}
	for _, err := range c.List(t.Context(), "a/b") {
		if !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("a name with a slash: %v", err)
		}
	}
}

// A run that another program has damaged hides no other, and is told with its keys; no argument is wrong then.
func TestList_Damaged(t *testing.T) {
	c := newClocked(t)
	ctx, first, bad, last := t.Context(), c.run("p").Ref, c.run("p").Ref, c.run("p").Ref
	_, err := c.space.KV().Put(ctx, bad.head(), []byte("{garbage"))
	c.ok(err)
	var listed []Ref
	var told error
	for rep, err := range c.List(ctx, "p") {
		if told = err; err == nil {
			listed = append(listed, rep.Ref)
		}
	}
	if !slices.Equal(listed, []Ref{first, last}) || told == nil || !strings.Contains(told.Error(), bad.head()) {
		t.Errorf("listed %q, then %v", listed, told)
	}
	if err := c.Cancel(ctx, bad, "not wanted"); err == nil || errors.Is(err, fs.ErrInvalid) {
		t.Errorf("cancelled: %v", err)
	}
}

// One that waits for its turn at a queue leaves when its time is over.
func TestTurn_Ends(t *testing.T) {
	c := newClocked(t)
	v := c.run("p")
	leave, err := c.turn(t.Context(), "p")
	c.ok(err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	left := make(chan error, 1)
	go func() {
		_, err := c.put(ctx, v, pipeline.Event{Kind: pipeline.Cancel}, nil)
		left <- err
	}()
	select {
	case err := <-left:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it left with %v", err)
		}
		leave()
	case <-time.After(10 * time.Second):
		leave()
		t.Fatal("it has not left")
	}
	_, err = c.put(t.Context(), v, pipeline.Event{Kind: pipeline.Cancel}, nil)
	c.ok(err)
	if len(c.turns) != 0 {
		t.Errorf("%d turns are left", len(c.turns))
	}
}

// A run hears of the runners of its own pipeline, whatever that is called.
func TestInterest_Glob(t *testing.T) {
	for own, others := range map[string][]string{"[x]*?": {"xxx", "[x]aa"}, `x\*`: {"x*", `x\a`}} {
		a := &active{view: &view{Ref: Ref{own, "1"}, plan: plan{Definition: &pipeline.Definition{Places: 1}}}}
		for _, name := range append(others, own) {
			e := &holdfast.Event{Kind: "election", Verb: "released", Name: Ref{name, "2"}.election()}
			if got := a.interest().Events[0].Match(e); got != (name == own) {
				t.Errorf("%s hears of an event of %s: %t", own, name, got)
			}
		}
	}
}

// Of the reasons for one wait the first is kept at once, and then one a second, the last.
func TestReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reasons{due: stopped()}
		s := pipeline.State{Status: pipeline.Blocked, Phase: "a", Attempt: 1}
		kept := 0
		hear := func(m message) {
			if r.now(&m, &s) {
				s.Reason = m.event.Reason
				kept++
			}
		}
		for i := range 9_500 {
			hear(message{event: pipeline.Event{Kind: pipeline.Checked, Outcome: guard.Failed, Reason: fmt.Sprint(i)}})
			select {
			case <-time.After(time.Millisecond):
			case <-r.due.C:
				hear(r.last)
			}
		}
		if kept < 9 || kept > 11 {
			t.Errorf("%d of 9,500 reasons within 9.5 s are kept", kept)
		}
		if <-r.due.C; r.last.event.Reason != "9499" {
			t.Errorf("the last is %q", r.last.event.Reason)
		}
		s.Attempt++
		was := kept
		hear(message{event: pipeline.Event{Reason: "another wait"}})
		if kept != was+1 {
			t.Error("the first reason of the next wait is not kept at once")
		}
	})
}

// The success of a command does not count if what it ran under was lost before it ended,
// though nobody had noticed that yet.
func TestHear_LostBefore(t *testing.T) {
	c := newClocked(t)
	ctx := t.Context()
	r, err := c.Submit(ctx, Submission{Definition: &pipeline.Definition{Name: "p", Phases: []pipeline.Phase{
		pipeline.NewPhase("a", "make").WithHolds(pipeline.Want{Kind: "lock", Name: "prod"}),
	}}})
	c.ok(err)
	v, err := c.load(ctx, r)
	c.ok(err)
	l := c.lead(r)
	defer l.Resign()
	hold, err := c.s.Mutex("prod").Acquire(ctx)
	c.ok(err)
	of := func(kind pipeline.EventKind) pipeline.Event {
		return pipeline.Event{Kind: kind, Phase: "a", Attempt: 1, Token: uint64(hold.Token())}
	}
	c.ok(c.takeOver(ctx, v, l))
	for _, kind := range []pipeline.EventKind{pipeline.Admitted, pipeline.Acquired, pipeline.Launched} {
		_, err := c.put(ctx, v, of(kind), nil)
		c.ok(err)
	}
	_, err = c.s.ForceRelease(ctx, "prod", hold.Token())
	c.ok(err)
	<-hold.Done()
	a := &active{p: c.Pipelines, view: v, l: l, ctx: ctx, task: func() {}, until: stopped(), recheck: stopped(), hold: hold,
		command: &command{phase: "a", attempt: 1, halt: make(chan struct{})}}
	c.ok(a.hear(message{event: of(pipeline.Exited)}))
	if s := a.State; s.Status != pipeline.Failed || !strings.HasPrefix(s.Reason, "a: what it held was lost while its command ran: holdfast: hold \"prod\": lost: it was taken by force") {
		t.Errorf("it is %+v", s)
	}
}

// Of the oldest run alone it counts how often it was passed over: when it is cancelled, the
// next of low priority has to wait for the higher ones.
func TestPriority_OldestLeaves(t *testing.T) {
	c := newClocked(t)
	ctx := t.Context()
	var refs []Ref
	for i, priority := range []int{0, 0, 9} {
		d := &pipeline.Definition{Name: "p", Places: 1, Policy: pipeline.Priority, Phases: []pipeline.Phase{pipeline.NewPhase("a", "make")}}
		r, err := c.Submit(ctx, Submission{Definition: d, ID: fmt.Sprint("r", i), Priority: priority})
		c.ok(err)
		refs = append(refs, r)
	}
	q, err := c.loadQueue(ctx, "p")
	c.ok(err)
	q.Passed = pipeline.MaxPassed
	c.ok(c.keepQueue(ctx, "p", q))
	v, err := c.load(ctx, refs[1])
	c.ok(err)
	next := func() string {
		q, err := c.loadQueue(ctx, "p")
		c.ok(err)
		id, _, err := q.next(v.Definition, nil)
		c.ok(err)
		return id
	}
	if id := next(); id != "r0" {
		t.Errorf("after %d passes %s is next", pipeline.MaxPassed, id)
	}
	c.ok(c.Cancel(ctx, refs[0], "not wanted"))
	if id := next(); id != "r2" {
		t.Errorf("of two that were never passed over %s is next", id)
	}
}

// deaf is a backend with watches that tell nothing.
type deaf struct{ driver.Driver }

func (d deaf) Watch(ctx context.Context, r *driver.WatchRequest) iter.Seq2[driver.Event, error] {
	return func(yield func(driver.Event, error) bool) { <-ctx.Done() }
}

// What no event tells a run is found by the re-check, of many runs in few requests.
func TestSweep(t *testing.T) {
	s, err := holdfast.New(deaf{memhold.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := New(Config{Space: s, Recheck: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	never := guard.KeyExists("never")
	d := &pipeline.Definition{Name: "p", Phases: []pipeline.Phase{{Name: "a", When: &never}}}
	states := make(chan pipeline.Status)
	const runs = 2*sweepAtOnce + 1
	for range runs {
		r, err := p.Submit(t.Context(), Submission{Definition: d})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			s, err := p.Run(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			states <- s.Status
		}()
	}
	for rep, err := range p.List(t.Context(), "p") {
		if err == nil {
			err = p.Cancel(t.Context(), rep.Ref, "not wanted")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range runs {
		select {
		case is := <-states:
			if is != pipeline.Cancelled {
				t.Errorf("a run is %s", is)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("a run does not find out that it is cancelled")
		}
	}
	if p.sweeping != nil {
		t.Error("the sweeps go on without runs")
	}
}

// The place of a run is its turn: under priority that of the order of starting, also when the oldest was passed over as often
// as may be.
func TestReport_Place(t *testing.T) {
	c := newClocked(t)
	d := &pipeline.Definition{Name: "p", Places: 1, Policy: pipeline.Priority, Phases: []pipeline.Phase{pipeline.NewPhase("a", "make")}}
	var refs []Ref
	for _, priority := range []int{0, 5, 9, 5} {
		r, err := c.Submit(t.Context(), Submission{Definition: d, Priority: priority})
		c.ok(err)
		refs = append(refs, r)
	}
	places := func() (list []int) {
		for _, r := range refs {
			rep, err := c.Report(t.Context(), r)
			c.ok(err)
			list = append(list, rep.Place)
		}
		return list
	}
	if got := places(); !slices.Equal(got, []int{4, 2, 1, 3}) {
		t.Errorf("the places are %v", got)
	}
	rep, err := c.Report(t.Context(), refs[0])
	c.ok(err)
	if rep.State.Reason != "it has place 4 in the queue; 3 is next" {
		t.Error(rep.State.Reason)
	}
	q, err := c.loadQueue(t.Context(), "p")
	c.ok(err)
	q.Passed = pipeline.MaxPassed
	if got := q.turn(d, "1"); got != 1 {
		t.Errorf("the oldest, which was passed over often enough, has place %d", got)
	}
	q.Passed, q.Runs[0].Replaced = 0, true
	if first, last := q.turn(d, "3"), q.turn(d, "1"); first != 1 || last != 4 {
		t.Errorf("the first has place %d, one that was replaced %d", first, last)
	}
}

// between is a backend that does something after the first transaction.
type between struct {
	driver.Driver
	then func()
}

func (b *between) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	reply, err := b.Driver.Txn(ctx, r)
	if then := b.then; then != nil {
		b.then = nil
		then()
	}
	return reply, err
}

// A run that gets its place while it is reported is told as it was before, or as it is after: never as one behind itself.
func TestReport_AdmittedMeanwhile(t *testing.T) {
	b := &between{Driver: memhold.New()}
	s, err := holdfast.New(b)
	c := &clocked{t: t, s: s}
	c.ok(err)
	defer s.Close()
	c.Pipelines, err = New(Config{Space: s, Runner: none{}})
	c.ok(err)
	v := c.run("p")
	b.then = func() {
		_, err := c.put(t.Context(), v, pipeline.Event{Kind: pipeline.Admitted}, nil)
		c.ok(err)
	}
	rep, err := c.Report(t.Context(), v.Ref)
	if c.ok(err); rep.State.Status != pipeline.Queued || rep.Place != 1 || len(rep.Ahead) > 0 || rep.State.Reason != "" {
		t.Errorf("%+v", rep)
	}
	q, err := c.loadQueue(t.Context(), "p")
	if _, ahead := q.before(v.Definition, v.ID); err != nil || len(ahead) > 0 || q.places() != 1 {
		t.Errorf("before it are %v, of %d: %v", ahead, q.places(), err)
	}
}
