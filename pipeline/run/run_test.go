//go:build unix

package run_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/manager"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// commands plays commands: what is done when one runs, by the name of its program.
type commands func(c *run.Command) (run.Exit, error)

func (f commands) Run(c *run.Command) (run.Exit, error) { return f(c) }

// succeed ends well, at once.
func succeed(*run.Command) (run.Exit, error) { return run.Exit{Tail: "all is well\n"}, nil }

// untilStopped runs until it is stopped or what it runs under is over.
func untilStopped(c *run.Command) (run.Exit, error) {
	select {
	case <-c.Stop:
		return run.Exit{Code: 143}, nil
	case <-c.Hold.Done():
		return run.Exit{}, nil // it takes the signal for a wish, and ends well
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pipelines(t *testing.T, c run.Config) *run.Pipelines {
	t.Helper()
	if c.Recheck == 0 {
		c.Recheck = time.Hour
	}
	p, err := run.New(c)
	ok(t, err)
	return p
}

func submit(t *testing.T, p *run.Pipelines, d *pipeline.Definition) run.Ref {
	t.Helper()
	r, err := p.Submit(t.Context(), run.Submission{Definition: d})
	ok(t, err)
	return r
}

// ended runs a run to its end.
func ended(t *testing.T, p *run.Pipelines, r run.Ref) pipeline.State {
	t.Helper()
	s, err := p.Run(t.Context(), r)
	ok(t, err)
	return s
}

// until waits for a state of a run, which any program may write: it is looked at now and then.
func until(t *testing.T, p *run.Pipelines, r run.Ref, is func(*run.Report) bool) run.Report {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for ; ; <-look.C {
		rep, err := p.Report(t.Context(), r)
		ok(t, err)
		if is(&rep) {
			return rep
		}
	}
}

func status(s pipeline.Status) func(*run.Report) bool {
	return func(r *run.Report) bool { return r.State.Status == s }
}

var prod = pipeline.Want{Kind: "lock", Name: "prod"}

func release(phases ...pipeline.Phase) *pipeline.Definition {
	return &pipeline.Definition{Name: "release", Phases: phases}
}

// Seed 002: "Pipeline blocks when pre-guard fails", "Pipeline blocks on failed pre-guard", "Pipeline resumes when guard
// passes", "Pipeline blocked/resumed on guard state", "Integration tests for gated phase transitions":
// on every backend, woken by the event alone, with everything told in order.
func TestRun(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			s, other := backends.Open(t, backend)
			var env []string
			p := pipelines(t, run.Config{Space: s, Runner: commands(func(c *run.Command) (run.Exit, error) {
				if c.Phase == "deploy" {
					env = c.Env
					if r, err := s.Inspect(t.Context(), "prod"); err != nil || len(r.Holders) != 1 {
						t.Errorf("while it runs prod has %v, %v", r.Holders, err)
					}
				}
				return succeed(c)
			})})
			told := tellings(t, other)
			r, err := p.Submit(t.Context(), run.Submission{Params: map[string]string{"to": "eu"}, Definition: release(
				pipeline.NewPhase("build", "make"),
				pipeline.NewPhase("deploy", "./deploy").WithPre(guard.KeyExists("go")).WithHolds(prod, pipeline.Want{Kind: "semaphore", Name: "agents", Weight: 2, Limit: 5}),
			)})
			ok(t, err)
			done := make(chan pipeline.State)
			go func() { done <- ended(t, p, r) }()
			rep := until(t, p, r, func(r *run.Report) bool { return r.State.Status == pipeline.Blocked && r.State.Reason != "" })
			if !strings.Contains(rep.State.Reason, `"go"`) || rep.State.Phase != "deploy" || rep.Runner == "" {
				t.Errorf("blocked as %+v", rep.State)
			}
			_, err = other.KV().Put(t.Context(), "go", []byte("yes"))
			ok(t, err)
			if s := <-done; s.Status != pipeline.Done || s.Tail != "all is well\n" {
				t.Errorf("it ended as %+v", s)
			}
			for _, want := range []string{"HOLDFAST_PIPELINE=release", "HOLDFAST_RUN=1", "HOLDFAST_PHASE=deploy", "HOLDFAST_PARAM_to=eu"} {
				if !slices.Contains(env, want) {
					t.Errorf("%q is not in %q", want, env)
				}
			}
			if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, `HOLDFAST_TOKENS={"agents":`) }) {
				t.Errorf("no tokens in %q", env)
			}
			want := strings.Fields(`pipeline:queued pipeline:launching pipeline:running guard:evaluating guard:failed pipeline:waiting
				guard:passed pipeline:resumed pipeline:acquiring pipeline:launching pipeline:running pipeline:done`)
			if got := told(); !slices.Equal(got, want) {
				t.Errorf("told %q;\nwant %q", got, want)
			}
			if h, err := s.Inspect(t.Context(), "prod"); err != nil || len(h.Holders) > 0 {
				t.Errorf("prod is still held: %v, %v", h.Holders, err)
			}
		})
	}
}

// tellings collects the events of pipelines and guards as a manager tells them, until the
// run is done.
func tellings(t *testing.T, s *holdfast.Space) func() []string {
	t.Helper()
	m, err := manager.New(manager.Config{Space: s})
	ok(t, err)
	t.Cleanup(func() { m.Close() })
	var list []string
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for e, err := range m.Events(ctx) {
			if e.Kind == "" && err == nil {
				close(ready)
				continue
			}
			if e.Pipeline != "release/1" || err != nil {
				t.Errorf("told %+v, %v", e, err)
			}
			if list = append(list, e.String()); err != nil || e.Verb == "done" {
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); all.Wait() })
	<-ready
	return func() []string {
		all.Wait()
		return list
	}
}

// What pipelines need is asked for at the start, and what a definition needs when it is
// submitted.
func TestRefused(t *testing.T) {
	nats := backends.Client(t, services.NATS(t).URL())
	if _, err := run.New(run.Config{Space: nats}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), `the nats backend lacks "txn"`) {
		t.Errorf("on NATS: %v", err)
	}
	if _, err := run.New(run.Config{}); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("without a Space: %v", err)
	}
	s, _ := backends.Open(t, "memory")
	p := pipelines(t, run.Config{Space: s, Runner: commands(succeed)})
	phase := pipeline.NewPhase("a", "make")
	woken, long := phase.WithWakeOn("lock"), phase
	long.Run = []string{"echo", strings.Repeat("x", run.MaxDefinition)}
	for want, sub := range map[string]run.Submission{
		"a definition is missing":           {},
		"it has 0 phases":                   {Definition: release()},
		"neither kind:verb":                 {Definition: release(woken)},
		"and no slash":                      {Definition: release(phase), ID: "a/b"},
		`phase "sl/ash": its name has`:      {Definition: release(pipeline.NewPhase("sl/ash"))},
		"at most 24576 are kept":            {Definition: release(long)},
		"no slash, quote, backslash":        {Definition: release(phase), ID: `a"b`},
		"has a control character at byte 1": {Definition: release(phase.WithHolds(pipeline.Want{Kind: "lock", Name: "a\x01b"}))},
		"the name has 1000 bytes":           {Definition: release(phase.WithHolds(prod, pipeline.Want{Kind: "read", Name: strings.Repeat("n", 1000)}))},
		"the key has 1000 bytes":            {Definition: release(phase.WithLimits(pipeline.Limit{Limiter: "l", Key: strings.Repeat("n", 1000), Cost: 1}))},
		"limits: ":                          {Definition: release(phase.WithLimits(pipeline.Limit{Limiter: "a\x01b", Cost: 1}))},
		`it has no name`:                    called(phase, ""),
		`run: the text "caf\xe9" is`:        {Definition: release(pipeline.NewPhase("a", "rm", "caf\xe9"))},
		`run: the text "a\x00b" is not`:     {Definition: release(pipeline.NewPhase("a", "rm", "a\x00b"))},
		`wake_on: the text "kv:\xe9:set"`:   {Definition: release(phase.WithWakeOn("kv:\xe9:set"))},
		"when: a text of a condition is":    {Definition: release(phase.WithPre(guard.All(guard.Not(guard.FileNotExists("fr\xe9eze")))))},
		"until: a text of a condition is":   {Definition: release(phase.WithPost(guard.KeyEquals("k", "\xe9"), 0))},
		`"abc" is no pid, or pid@start`:     {Definition: release(phase.WithPre(guard.All(guard.SessionAlive("pid:abc"))))},
		`"a..b" is no name of a branch`:     {Definition: release(phase.WithPost(guard.BranchExists("a..b"), 0))},
		`the parameter "to"`:                {Definition: release(phase), Params: map[string]string{"to": "\xe9"}},
		"its name has 1 to 64 bytes":        called(phase, "a\nb"),
	} {
		if _, err := p.Submit(t.Context(), sub); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	none := pipelines(t, run.Config{Space: s})
	if _, err := none.Submit(t.Context(), run.Submission{Definition: release(phase)}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a command without a Runner: %v", err)
	}
	r := submit(t, p, release(phase))
	if _, err := p.Submit(t.Context(), run.Submission{Definition: release(phase), ID: r.ID}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the same ID again: %v", err)
	}
	if err := p.Answer(t.Context(), r, pipeline.Again); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("an answer that nobody asked for: %v", err)
	}
	if _, err := p.Run(t.Context(), run.Ref{Pipeline: "release", ID: "none"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a run that is not there: %v", err)
	}
}

// A condition that is false for another reason every moment does not fill the log.
func TestReasons_ManyChanges(t *testing.T) {
	s, other := backends.Open(t, "memory")
	p := pipelines(t, run.Config{Space: s})
	r := submit(t, p, release(pipeline.NewPhase("deploy").WithPre(guard.KeyEquals("k", "go"))))
	began := time.Now()
	done := make(chan pipeline.State)
	go func() { done <- ended(t, p, r) }()
	until(t, p, r, func(r *run.Report) bool { return r.State.Reason != "" })
	for i := range 3000 {
		_, err := other.KV().Put(t.Context(), "k", fmt.Append(nil, i))
		ok(t, err)
	}
	_, err := other.KV().Put(t.Context(), "k", []byte("go"))
	ok(t, err)
	<-done
	// Submitted, taken over, admitted, the first reason, passed; and one a second.
	if rep := until(t, p, r, status(pipeline.Done)); rep.Events > 6+int(time.Since(began)/time.Second) {
		t.Errorf("%d events", rep.Events)
	}
}

func called(ph pipeline.Phase, name string) run.Submission {
	d := release(ph)
	d.Name = name
	return run.Submission{Definition: d}
}
