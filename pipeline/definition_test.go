package pipeline_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/pipeline"
)

// The path of a run are the phases that it has entered: failures leave out those between.
func TestPath(t *testing.T) {
	phase := func(name, next string) pipeline.Phase {
		p := pipeline.NewPhase(name, "x")
		p.OnFailure = next
		return p
	}
	clean := phase("clean", "")
	clean.Recovery = true
	p := newPlayer(t, phase("build", "ship"), phase("test", ""), phase("ship", "clean"), phase("tell", ""), clean)
	if got := p.d.Path(&p.s); len(got) > 0 {
		t.Errorf("before the first phase: %q", got)
	}
	p.start()
	for _, code := range []int{1, 1, 0} {
		p.must(p.of(pipeline.Launched))
		p.exit(code)
	}
	p.is(pipeline.Failed, "clean", 1)
	if got := p.d.Path(&p.s); !slices.Equal(got, []string{"build", "ship", "clean"}) || !slices.Equal(p.s.Failed, []string{"build", "ship"}) {
		t.Errorf("the path is %q, and failed have %q", got, p.s.Failed)
	}
}

// Each wrong definition is refused with what is wrong, as an fs.ErrInvalid.
func TestCheck(t *testing.T) {
	bad := map[string]func(d *pipeline.Definition){
		"has no name":                 func(d *pipeline.Definition) { d.Name = "" },
		"0 phases":                    func(d *pipeline.Definition) { d.Phases = nil },
		"257 phases":                  func(d *pipeline.Definition) { d.Phases = make([]pipeline.Phase, 257) },
		"every phase is for recovery": func(d *pipeline.Definition) { d.Phases[0].Recovery, d.Phases[1].Recovery = true, true },
		"phase 1 has no name":         func(d *pipeline.Definition) { d.Phases[0].Name = "" },
		`two phases are called "a"`:   func(d *pipeline.Definition) { d.Phases[1].Name = "a" },
		"-1 retries":                  func(d *pipeline.Definition) { d.Phases[0].Retries = -1 },
		"1001 retries":                func(d *pipeline.Definition) { d.Phases[0].Retries = 1001 },
		"a pause of 1s before what":   func(d *pipeline.Definition) { d.Phases[0].Pause = time.Second },
		"a time is negative":          func(d *pipeline.Definition) { d.Phases[0].Pause = -1 },
		"within 1s of what":           func(d *pipeline.Definition) { d.Phases[0].Within = time.Second },
		"command is empty":            func(d *pipeline.Definition) { d.Phases[0].Run = []string{""} },
		`goes to "a"`:                 func(d *pipeline.Definition) { d.Phases[0].OnFailure = "a" },
		`goes to "c"`:                 func(d *pipeline.Definition) { d.Phases[0].OnFailure = "c" },
		"it holds 65":                 func(d *pipeline.Definition) { d.Phases[0].Holds = make([]pipeline.Want, 65) },
		"a lock has no name":          func(d *pipeline.Definition) { d.Phases[0].Holds = []pipeline.Want{{Kind: "lock"}} },
		`"mutex" is none of`:          func(d *pipeline.Definition) { d.Phases[0].Holds = []pipeline.Want{{Kind: "mutex", Name: "x"}} },
		`"x" is no semaphore`:         func(d *pipeline.Definition) { d.Phases[0].Holds = []pipeline.Want{{Kind: "lock", Name: "x", Limit: 2}} },
		"weight 3 of 2": func(d *pipeline.Definition) {
			d.Phases[0].Holds = []pipeline.Want{{Kind: "semaphore", Name: "x", Weight: 3, Limit: 2}}
		},
		"would wait for itself": func(d *pipeline.Definition) { d.Phases[0] = d.Phases[0].WithHolds(prod, prod) },
		"there are 17; at most": func(d *pipeline.Definition) { d.Phases[0].Limits = make([]pipeline.Limit, 17) },
		"a limiter has no name": func(d *pipeline.Definition) { d.Phases[0].Limits = []pipeline.Limit{{Cost: 1}} },
		"a cost of 0":           func(d *pipeline.Definition) { d.Phases[0].Limits = []pipeline.Limit{{Limiter: "api"}} },
		"add the costs up": func(d *pipeline.Definition) {
			d.Phases[0].Limits = []pipeline.Limit{{Limiter: "api", Cost: 1}, {Limiter: "api", Cost: 2}}
		},
		"nothing is run": func(d *pipeline.Definition) {
			d.Phases[0].Run, d.Phases[0].Limits = nil, []pipeline.Limit{{Limiter: "api", Cost: 1}}
		},
		"it has -1 places":    func(d *pipeline.Definition) { d.Places = -1 },
		"say how many places": func(d *pipeline.Definition) { d.Policy = pipeline.Newest },
		`the policy "lifo"`:   func(d *pipeline.Definition) { d.Places, d.Policy = 1, "lifo" },
		"when":                func(d *pipeline.Definition) { d.Phases[0] = d.Phases[0].WithPre(guard.LockFree("")) },
		"until":               func(d *pipeline.Definition) { d.Phases[0] = d.Phases[0].WithPost(guard.LockFree(""), 0) },
	}
	for want, spoil := range bad {
		d := &pipeline.Definition{Name: "x", Phases: []pipeline.Phase{pipeline.NewPhase("a", "run"), pipeline.NewPhase("b", "run")}}
		if err := d.Check(); err != nil {
			t.Fatal(err)
		}
		spoil(d)
		if err := d.Check(); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), fs.ErrInvalid.Error()) > 1 {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// A semaphore with two limits could never be had by both phases; both are named.
func TestCheck_TwoLimits(t *testing.T) {
	phase := func(name string, limit int64) pipeline.Phase {
		return pipeline.Phase{Name: name, Holds: []pipeline.Want{{Kind: "semaphore", Name: "s", Weight: 1, Limit: limit}}}
	}
	d := pipeline.Definition{Name: "p", Phases: []pipeline.Phase{phase("a", 2), phase("b", 2), phase("c", 3)}}
	want := `phases "a" and "c" hold the semaphore "s" with the limits 2 and 3`
	if err := d.Check(); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("checked with %v", err)
	}
	d.Phases = d.Phases[:2]
	if err := d.Check(); err != nil {
		t.Error(err)
	}
}
