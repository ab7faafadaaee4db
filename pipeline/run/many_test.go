//go:build unix

package run_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/memhold"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// claimed is what is known of a claim by an event.
type claimed struct {
	session holdfast.SessionID
	weight  int64
}

// 200 runs of two runners share a semaphore of 5 by weights: it is never above 5, and on a
// node they are granted in the order in which they were queued.
func TestMany(t *testing.T) {
	const runs, limit = 200, 5
	s, other := backends.Open(t, "node")
	var used atomic.Int64
	runner := commands(func(c *run.Command) (run.Exit, error) {
		weight := int64(len(c.Args[0]))
		if n := used.Add(weight); n > limit {
			t.Errorf("%d of %d are used", n, limit)
		}
		runtime.Gosched() // others may begin
		used.Add(-weight)
		return succeed(c)
	})
	grants, inversions := inOrder(t, other, "agents")
	ps := []*run.Pipelines{pipelines(t, run.Config{Space: s, Runner: runner}), pipelines(t, run.Config{Space: other, Runner: runner})}
	var all sync.WaitGroup
	for i := range runs {
		p, weight := ps[i%2], int64(1+i%limit)
		ph := pipeline.NewPhase("work", strings.Repeat("x", int(weight))).WithHolds(pipeline.Want{Kind: "semaphore", Name: "agents", Weight: weight, Limit: limit})
		all.Go(func() {
			r, err := p.Submit(t.Context(), run.Submission{Definition: release(ph)})
			if err != nil {
				t.Error(err)
				return
			}
			if s, err := p.Run(t.Context(), r); err != nil || s.Status != pipeline.Done {
				t.Errorf("%s: %+v, %v", r, s, err)
			}
		})
	}
	all.Wait()
	grants(runs)
	if n := inversions(); n != 0 {
		t.Errorf("%d of %d grants are out of order", n, runs)
	}
}

// inOrder watches a semaphore: grants waits for so many, and inversions is how many claims
// were granted before one that was queued earlier.
func inOrder(t *testing.T, s *holdfast.Space, name string) (grants func(n int), inversions func() int64) {
	t.Helper()
	var wrong atomic.Int64
	seen, ready := make(chan struct{}, 1000), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		var queue []claimed
		for e, err := range s.Watch(ctx, name, 0, holdfast.ExactName()) {
			of := claimed{e.Session, e.Weight}
			switch {
			case err != nil:
				t.Error(err)
			case e.Kind == "watch":
				close(ready)
			case e.Verb == "queued":
				queue = append(queue, of)
			case e.Verb == "acquired":
				if len(queue) > 0 && queue[0] != of {
					wrong.Add(1)
				}
				queue = queue[min(1, len(queue)):]
				seen <- struct{}{}
			}
		}
	})
	t.Cleanup(func() { cancel(); all.Wait() })
	<-ready
	return func(n int) {
		for range n {
			<-seen
		}
	}, wrong.Load
}

// What has ended is kept up to a bound, however many there were, and so is the log of one
// run.
func TestBounded(t *testing.T) {
	const runs, keep = 10_000, 20
	s, _ := backends.Open(t, "memory")
	p := pipelines(t, run.Config{Space: s, Runner: commands(succeed), Keep: keep})
	d := release(pipeline.NewPhase("build", "make"))
	for range runs {
		r := submit(t, p, d)
		ok(t, p.Cancel(t.Context(), r, "not wanted"))
	}
	// Of each: head, definition, two events, its number, three verbs; and the queue.
	if n := keys(t, s, "holdfast/pipelines/"); n > keep*5+1 {
		t.Errorf("%d runs leave %d keys", runs, n)
	}
	if n := keys(t, s, gather.EventPrefix); n > keep*3 {
		t.Errorf("%d runs leave %d keys of events", runs, n)
	}
	listed := 0
	for r, err := range p.List(t.Context(), "release") {
		ok(t, err)
		if listed++; r.Pipeline != "release" || r.State.Status != pipeline.Cancelled || r.Events != 2 {
			t.Errorf("listed %+v", r)
		}
	}
	if listed != keep {
		t.Errorf("%d are listed; want %d", listed, keep)
	}
	if next := submit(t, p, d); next.ID != fmt.Sprint(runs+1) {
		t.Errorf("the next is %s", next)
	}
}

// Fewer that are to be kept than before leave no more: the older go with the next ends.
func TestBounded_FewerKept(t *testing.T) {
	s, _ := backends.Open(t, "memory")
	d := release(pipeline.NewPhase("build", "make"))
	cancelled := func(keep, n int) {
		p := pipelines(t, run.Config{Space: s, Runner: commands(succeed), Keep: keep})
		for range n {
			ok(t, p.Cancel(t.Context(), submit(t, p, d), "not wanted"))
		}
	}
	cancelled(30, 40)
	cancelled(5, 20)
	p, listed := pipelines(t, run.Config{Space: s}), 0
	for r, err := range p.List(t.Context(), "release") {
		ok(t, err)
		if listed++; len(r.ID) != 2 || r.ID < "56" {
			t.Errorf("%s is left", r.ID)
		}
	}
	if n := keys(t, s, "holdfast/pipelines/"); listed != 5 || n > 5*5+1 {
		t.Errorf("%d runs with %d keys are left; want 5", listed, n)
	}
}

func keys(t *testing.T, s *holdfast.Space, prefix string) (n int) {
	t.Helper()
	for _, err := range s.KV().Range(t.Context(), prefix, holdfast.KeysOnly()) {
		ok(t, err)
		n++
	}
	return n
}

// A run of more than a thousand events, each with an output of more than 64 KiB of any bytes,
// fits into the requests of a node; the end of the output is kept.
func TestBounded_LongRun(t *testing.T) {
	s, _ := backends.Open(t, "node")
	said := strings.Repeat("\x00\x01\"\\<>\xff\u2028", 16<<10) + "the end"
	p := pipelines(t, run.Config{Space: s, Runner: commands(func(*run.Command) (run.Exit, error) {
		return run.Exit{Code: 1, Tail: said}, nil
	})})
	ph := pipeline.NewPhase("build", "make")
	ph.Retries = 520
	r := submit(t, p, release(ph))
	state := ended(t, p, r)
	if state.Status != pipeline.Failed || state.Attempt != 521 || !strings.HasSuffix(state.Tail, "the end") || len(state.Tail) > pipeline.MaxTail {
		t.Errorf("it ended as %s after %d attempts, with %d bytes of output", state.Status, state.Attempt, len(state.Tail))
	}
	rep, err := p.Report(t.Context(), r)
	ok(t, err)
	events, err := p.Events(t.Context(), r)
	ok(t, err)
	if rep.Events < 1000 || len(events) != run.MaxEvents || events[len(events)-1].Kind != pipeline.Exited {
		t.Errorf("%d events, of which %d are kept; the last is %+v", rep.Events, len(events), events[len(events)-1])
	}
	if n := keys(t, s, "holdfast/pipelines/release/log/"); n != run.MaxEvents {
		t.Errorf("%d keys of the log", n)
	}
}

// What is no UTF-8 in an output is kept as U+FFFD, and nothing else of it is lost.
func TestBounded_OutputOfOtherBytes(t *testing.T) {
	said := ""
	p := pipelines(t, run.Config{Space: memhold.Open(), Runner: commands(func(*run.Command) (run.Exit, error) {
		return run.Exit{Tail: said}, nil
	})})
	for out, want := range map[string]string{
		"caf\xe9 cr\xe8me\n":                            "caf\uFFFD cr\uFFFDme\n",
		strings.Repeat("\xe9", 2*pipeline.MaxTail):      "\uFFFD",
		strings.Repeat("é", pipeline.MaxTail) + "a\xe9": strings.Repeat("é", (pipeline.MaxTail-4)/2) + "a\uFFFD",
	} {
		said = out
		r := submit(t, p, release(pipeline.NewPhase("build", "make")))
		if s := ended(t, p, r); s.Tail != want {
			t.Errorf("of %.20q %d bytes are kept: %.20q", out, len(s.Tail), s.Tail)
		}
		events, err := p.Events(t.Context(), r)
		ok(t, err)
		if tail := events[len(events)-1].Tail; !strings.HasSuffix(want, tail) || tail == "" {
			t.Errorf("of %.20q the event has %.20q", out, tail)
		}
	}
}

// A reason has at most MaxReason bytes, with the mark of the cut.
func TestBounded_Reason(t *testing.T) {
	p := pipelines(t, run.Config{Space: memhold.Open(), Runner: commands(succeed)})
	r := submit(t, p, release(pipeline.NewPhase("build", "make")))
	ok(t, p.Cancel(t.Context(), r, strings.Repeat("é", 5000)))
	rep, err := p.Report(t.Context(), r)
	ok(t, err)
	if got := rep.State.Reason; len(got) > run.MaxReason || len(got) < run.MaxReason-3 || !strings.HasSuffix(got, "é…") {
		t.Errorf("%d bytes are kept", len(got))
	}
}

// A pipeline with places takes so many runs, however long their names and definitions are,
// ends them with any output, and refuses more.
func TestBounded_Queue(t *testing.T) {
	s, _ := backends.Open(t, "node")
	p := pipelines(t, run.Config{Space: s, Runner: commands(func(*run.Command) (run.Exit, error) {
		return run.Exit{Code: 1, Tail: strings.Repeat(`"\`, pipeline.MaxTail)}, nil
	})})
	d := release(pipeline.NewPhase("build", "make"))
	d.Name, d.Places = strings.Repeat("r", 64), 1
	long := *d
	long.Phases = []pipeline.Phase{pipeline.NewPhase("build", "make", strings.Repeat("x", run.MaxDefinition-250))}
	var first run.Ref
	for i := range run.MaxRuns + 1 {
		if i == run.MaxRuns-1 {
			d = &long
		}
		r, err := p.Submit(t.Context(), run.Submission{Definition: d, ID: fmt.Sprintf("%048d", i), Priority: math.MinInt32})
		ok(t, err)
		if i == 0 {
			first = r
		}
		if i == run.MaxRuns-1 { // the queue is full; it ends one of its runs, and takes another
			if s := ended(t, p, first); s.Status != pipeline.Failed {
				t.Errorf("the first is %s", s.Status)
			}
		}
	}
	if _, err := p.Submit(t.Context(), run.Submission{Definition: d}); err == nil || !strings.Contains(err.Error(), "submit it again when some have ended") {
		t.Errorf("one more: %v", err)
	}
}
