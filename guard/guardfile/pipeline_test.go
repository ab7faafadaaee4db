package guardfile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/guardfile"
	"github.com/holdfast-io/holdfast/pipeline"
)

const release = `pipeline: release
description: merge, then deploy
params:
  branch: {type: string, description: what is merged}
  agents: {type: integer, default: 2}
queue: {places: 1, policy: newest}
phases:
  - name: merge
    when: {branch_merged: {branch: "${branch}", into: main}}
    holds:
      - lock: main-branch
      - read: config
      - semaphore: {name: agents, weight: "${agents}", limit: 5}
    limits:
      - {limiter: api, key: "${branch}", cost: 3}
    wait: 2h
    run: [git, merge, "${branch}", "$${HOME}", "n=${agents}", "${agents}"]
    until: {file_exists: merged}
    within: 10m
    retries: 2
    pause: 10s
    on_failure: undo
    wake_on: ["lock:main-branch:*"]
  - name: deploy
    run: [./deploy]
  - {name: undo, recovery: true, run: [./undo]}
`

func TestParsePipeline(t *testing.T) {
	p, err := guardfile.ParsePipeline("release.yaml", []byte(release), map[string]string{"branch": "feature/x; rm -rf /"})
	if err != nil {
		t.Fatal(err)
	}
	branch := "feature/x; rm -rf /"
	merge := pipeline.NewPhase("merge", "git", "merge", branch, "${HOME}", "n=2", "2").
		WithPre(guard.BranchMerged(branch, "main")).WithPost(guard.FileExists("merged"), 10*time.Minute).
		WithHolds(pipeline.Want{Kind: "lock", Name: "main-branch"}, pipeline.Want{Kind: "read", Name: "config"}, pipeline.Want{Kind: "semaphore", Name: "agents", Weight: 2, Limit: 5}).
		WithLimits(pipeline.Limit{Limiter: "api", Key: branch, Cost: 3}).WithWakeOn("lock:main-branch:*")
	merge.Wait, merge.Retries, merge.Pause, merge.OnFailure = 2*time.Hour, 2, 10*time.Second, "undo"
	undo := pipeline.NewPhase("undo", "./undo")
	undo.Recovery = true
	want := pipeline.Definition{Name: "release", Places: 1, Policy: pipeline.Newest, Phases: []pipeline.Phase{merge, pipeline.NewPhase("deploy", "./deploy"), undo}}
	if !reflect.DeepEqual(p.Definition, want) {
		t.Errorf("read %+v\nwant %+v", p.Definition, want)
	}
	if !reflect.DeepEqual(p.Values, map[string]string{"branch": branch, "agents": "2"}) || !reflect.DeepEqual(p.Places, [][2]int{{8, 5}, {24, 5}, {26, 5}}) {
		t.Errorf("values %v, places %v", p.Values, p.Places)
	}
	if _, err := guardfile.ParsePipeline("release.yaml", []byte(release), nil); err != nil {
		t.Errorf("checked without values: %v", err)
	}
}

// A file is checked without values: a parameter that has none may stand wherever some value
// of it would fit, and nowhere else.
func TestParsePipeline_CheckedWithoutValues(t *testing.T) {
	head := "pipeline: p\nparams: {b: {}, n: {type: integer}}\nphases:\n"
	for _, text := range []string{
		`- {name: a, wait: "${b}", retries: "${b}", pause: "${b}m", until: {key: k}, within: "${n}s"}`,
		`- {name: a, when: {time_window: {from: "${b}", to: "0${n}:00", offset: "${b}"}}}`,
		`- {name: a, holds: [semaphore: {name: x, weight: 3, limit: "${n}"}, semaphore: {name: "${b}", weight: "${b}", limit: 2}]}`,
		`- {name: a, when: {time_window: {from: "08:00", to: "09:00", days: ["${b}", mon, "${b}"]}}}`,
		`- {name: a, when: {time_window: {from: "08:00", to: "09:00", days: ["${b}"]}}}`,
		"- {name: a, holds: [semaphore: {name: x, limit: \"${n}\"}]}\n- {name: c, holds: [semaphore: {name: x, limit: 3}]}",
		`- {name: a, retries: "${b}", when: {counter: {name: c, at_least: "${b}"}}}`,
	} {
		if _, err := guardfile.ParsePipeline("f.yaml", []byte(head+text), nil); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		`- {name: a, when: {time_window: {from: "08:00", to: "09:00", days: ["${b}", monday]}}}`,
		`- {name: a, when: {time_window: {from: "08:00", to: "09:00", days: ["${n}"]}}}`,
		`- {name: a, recovery: "${b}"}`, `- {name: a, wait: soon}`, `- {name: a, run: ["${b}"]}`, `- {name: a, run: "${b}"}`, `- {name: a, when: {custom_check: "${b}"}}`,
	} {
		if _, err := guardfile.ParsePipeline("f.yaml", []byte(head+text), nil); err == nil {
			t.Errorf("%s passes", text)
		}
	}
	if _, err := guardfile.ParsePipeline("f.yaml", []byte(head+`- {name: a, wait: "${b}"}`), map[string]string{"b": "soon", "n": "1"}); err == nil {
		t.Error("a wait of soon passes")
	}
	want := `f.yaml:4:10: wait: ${n} is a whole number, and a duration has a unit; write ${n}s`
	if _, err := guardfile.ParsePipeline("f.yaml", []byte(head+`- {wait: "${n}", name: a}`), nil); err == nil || err.Error() != want {
		t.Errorf("a wait of a number: %v", err)
	}
}

// What is wrong is told with file, line and column, and nothing is read then.
func TestParsePipeline_Errors(t *testing.T) {
	head := "pipeline: p\nparams: {b: {type: string}, n: {type: integer, default: 1}}\nphases:\n"
	for text, want := range map[string]string{
		"":                                   `f.yaml:1:1: the file is empty; a file begins with pipeline:`,
		"pipeline: a/b\nphases: [{name: a}]": `f.yaml:1:1: pipeline "a/b": its name has 1 to 64 bytes, and no slash`,
		head + "- {name: a}\n- {name: b/c}":  `f.yaml:5:3: pipeline "p": phase "b/c": its name has 1 to 64 bytes`,
		head + "- {name: a, holds: [lock: \"a\\u0001b\"]}": `f.yaml:4:3: pipeline "p": phase "a": holds: the name "a\x01b" has a control character at byte 1`,
		"pipeline: p":                        `f.yaml:1:1: the file lacks phases`,
		"pipeline: p\nphase: []\nphases: []": `f.yaml:2:1: the file does not know "phase"; did you mean phases?`,
		"pipeline: p\nphases: []":            `f.yaml:1:1: pipeline "p": it has 0 phases`,
		"pipeline: p\nqueue: {places: 0}\nphases: [{name: a}]\n---\n{}":           `f.yaml:4:1: a second document begins here; a file has one pipeline`,
		"pipeline: p\nqueue: {places: -5}\nphases: [{name: a}]":                   `f.yaml:1:1: pipeline "p": it has -5 places; 1 to`,
		"pipeline: p\nqueue: {places: 5000000000}\nphases: [{name: a}]":           `f.yaml:1:1: pipeline "p": it has 5000000000 places; 1 to`,
		"pipeline: p\nqueue: {policy: lifo, places: 1}\nphases: [{name: a}]":      `f.yaml:1:1: pipeline "p": pipeline: queue: the policy "lifo" is none of`,
		head + "- {name: a, run: make}":                                           `f.yaml:4:18: run wants a list, this is a text`,
		head + "- {name: a, run: []}":                                             `f.yaml:4:18: run has no program`,
		head + "- {name: a, rn: [make]}":                                          `f.yaml:4:13: a phase does not know "rn"; did you mean run?`,
		head + "- {run: [make]}":                                                  `f.yaml:4:3: a phase lacks name`,
		head + "- {name: a, run: [make, 7]}":                                      `f.yaml:4:25: run wants a text, this is a whole number; write it in quotes: "7"`,
		head + "- {name: a, wait: 5}":                                             `f.yaml:4:19: wait: "5" has no unit: write 5s`,
		head + "- {name: a, within: 2.5}":                                         `f.yaml:4:21: within: "2.5" has no unit: write 2.5s`,
		head + "- {name: a, wait: \"5\"}":                                         `f.yaml:4:19: wait: "5" has no unit: write 5s`,
		head + "- {name: a, wait: \"${n}\"}":                                      `f.yaml:4:19: wait: "1" has no unit: write 1s; ${n} stands there: give the parameter another value`,
		head + "- {name: a, wait: \"${b}\"}":                                      `f.yaml:4:19: wait: "x" is not a duration such as "90s" or "2h"; ${b} stands there: give the parameter another value`,
		head + "- {name: a, pause: 5s}":                                           `f.yaml:4:3: pipeline "p": phase "a": a pause of 5s before what? Give retries`,
		head + "- {name: a, wait: 0}":                                             `f.yaml:4:19: wait: "0" is not a duration such as "90s" or "2h"`,
		head + "- {name: a, wait: true}":                                          `f.yaml:4:19: wait wants a text, this is`,
		head + "- {name: a, wait: soon}":                                          `f.yaml:4:19: wait: "soon" is not a duration such as "90s" or "2h"`,
		head + "- {name: a, wait: -5s}":                                           `f.yaml:4:19: wait: "-5s" is not a duration`,
		head + "- {name: a, retries: 1001}":                                       `f.yaml:4:3: pipeline "p": phase "a": 1001 retries`,
		head + "- {name: a}\n- {name: b, on_failure: a}":                          `f.yaml:5:3: pipeline "p": phase "b": on failure it goes to "a", which is no later phase`,
		head + "- {name: a, on_failure: a}":                                       `f.yaml:4:3: pipeline "p": phase "a": on failure it goes to "a", which is no later phase`,
		head + "- {name: a, within: 5s}":                                          `f.yaml:4:3: pipeline "p": phase "a": within 5s of what?`,
		head + "- {name: a, when: {lock_fre: x}}":                                 `f.yaml:4:20: a condition does not know "lock_fre"; did you mean lock_free?`,
		head + "- {name: a, holds: [{lock: x, read: y}]}":                         `f.yaml:4:21: a hold has one key`,
		head + "- {name: a, holds: [mutex: x]}":                                   `f.yaml:4:21: a hold does not know "mutex"; known: lock, read, semaphore, write`,
		head + "- {name: a, holds: [semaphore: {name: x}]}":                       `f.yaml:4:32: semaphore lacks limit`,
		head + "- {name: a, limits: [{cost: 1}]}":                                 `f.yaml:4:22: a limit lacks limiter`,
		head + "- {name: a, run: [make, \"${c}\"]}":                               `f.yaml:4:25: there is no parameter "c"`,
		head + "- {name: a, run: [make, \"${b\"]}":                                `f.yaml:4:25: a ${ has no }; write ${name} for a parameter, or $${ for ${ itself`,
		head + "- {name: a, when: {lock_free: " + strings.Repeat("n", 600) + "}}": `f.yaml:4:20: guard: lock_free: the name has 600 bytes; at most 512 are allowed`,
		head + "- {name: a, run: [\"${b}\"]}":                                     `f.yaml:4:19: the program of a command cannot be a parameter`,
		head + "- {name: a, run: [sh, -c, \"deploy ${b}\"]}":                      `f.yaml:4:27: a parameter would become text of a shell; the command finds it in HOLDFAST_PARAM_name`,
		head + "- {name: a, run: [bash, -c, --, \"deploy ${b}\"]}":                `f.yaml:4:33: a parameter would become text of a shell`,
		head + "- {name: a, run: [timeout, 5s, sh, -c, \"deploy ${b}\"]}":         `f.yaml:4:40: a parameter would become text of a shell`,
		head + "- {name: a, run: [env, tcsh, -f, -c, \"deploy ${b}\"]}":           `f.yaml:4:38: a parameter would become text of a shell`,
		head + "- {name: a, run: [/bin/bash, -ec, \"deploy ${b}\"]}":              `f.yaml:4:35: a parameter would become text of a shell`,
		head + "- {name: a, when: {custom_check: \"test ${b}\"}}":                 `f.yaml:4:34: custom_check.command: a parameter would become a part of the command`,
		head + "- {name: a, holds: [semaphore: {name: x, limit: \"${b}\"}]}":      `f.yaml:4:49: semaphore.limit wants a whole number, this is a text; ${b} stands there: give the parameter another value`,
		"pipeline: p\nparams: {7b: {}}\nphases: [{name: a}]":                      `f.yaml:2:10: the parameter "7b": its name has`,
		"pipeline: p\nparams: {b: {type: list}}\nphases: [{name: a}]":             `f.yaml:2:10: the parameter "b": the type "list" is none of`,
		"pipeline: p\nparams: {z: {type: integer}}\nphases: [{name: a}]":          `f.yaml:2:10: the parameter "z" has no value; give it, or a default in the file`,
		"pipeline: p\nphases: &a [*a]":                                            `a phase wants a mapping, this is a list`,
	} {
		given := map[string]string{}
		if strings.HasPrefix(text, head) {
			given["b"] = "x"
		}
		p, err := guardfile.ParsePipeline("f.yaml", []byte(text), given)
		if p != nil || !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n%v\nwant %s", text, err, want)
		}
	}
}

// A value is a part of a text and never more.
func TestParsePipeline_Values(t *testing.T) {
	for v, want := range map[string]string{
		"--upload-pack=evil":      "begins with -",
		"-":                       "begins with -",
		"a\nb":                    "control characters",
		"a\x00":                   "control characters",
		"\xff":                    "not UTF-8",
		strings.Repeat("x", 1025): "at most 1024 bytes",
	} {
		if _, err := guardfile.ParsePipeline("f.yaml", []byte(release), map[string]string{"branch": v}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", v, err, want)
		}
	}
	joined := "pipeline: p\nparams: {a: {}, b: {}}\nphases: [{name: x, run: [git, branch, \"${a}-${b}\"]}]"
	if _, err := guardfile.ParsePipeline("f.yaml", []byte(joined), map[string]string{"a": "team", "b": "Df"}); err != nil {
		t.Error(err)
	}
	want := `f.yaml:3:39: "-Df" begins with - by the values of its parameters, and could become an option of a program`
	if _, err := guardfile.ParsePipeline("f.yaml", []byte(joined), map[string]string{"a": "", "b": "Df"}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("an option made of two values: %v", err)
	}
	option := strings.ReplaceAll(joined, "${a}-", "--${a}=")
	if _, err := guardfile.ParsePipeline("f.yaml", []byte(option), map[string]string{"a": "", "b": "Df"}); err != nil {
		t.Errorf("an option of the file's own: %v", err)
	}
	for _, n := range []string{"x", "1.5", "010", ""} {
		if _, err := guardfile.ParsePipeline("f.yaml", []byte(release), map[string]string{"branch": "b", "agents": n}); err == nil {
			t.Errorf("the number %q is taken", n)
		}
	}
	if _, err := guardfile.ParsePipeline("f.yaml", []byte(release), map[string]string{"branch": "b", "brnch": "c"}); err == nil || !strings.Contains(err.Error(), `the file has no parameter "brnch"`) {
		t.Errorf("one too many: %v", err)
	}
}

// A value becomes no further words of a filter: another repository, say, would decide.
func TestParsePipeline_Filter(t *testing.T) {
	for _, c := range []struct {
		filter, value string
		refused       bool
	}{
		{`milestone:${m}`, "v2", false},
		{`milestone:${m}`, "v2 repo:eve/closed", true},
		{`milestone:${m}`, `"v2 x"`, true},
		{`milestone:"${m}"`, "spring 26", false},
		{`milestone:"${m}"`, `v2" repo:eve/closed label:"x`, true},
		{`milestone:"v 2" label:${m}`, "a b", true},
	} {
		text := "pipeline: p\nparams: {m: {type: string}}\nphases: [{name: a, when: {issues_complete: '" + c.filter + "'}}]"
		_, err := guardfile.ParsePipeline("f.yaml", []byte(text), map[string]string{"m": c.value})
		if refused := err != nil && strings.Contains(err.Error(), "f.yaml:3:44: issues_complete.filter: the value of a parameter would become further words"); refused != c.refused || err != nil && !refused {
			t.Errorf("%s with %q: %v", c.filter, c.value, err)
		}
	}
}

// Whatever the text, reading ends, and never with half a pipeline.
func FuzzParsePipeline(f *testing.F) {
	f.Add([]byte(release))
	f.Add([]byte(`{"pipeline":"p","phases":[{"name":"a","run":["${x}"]}]}`))
	f.Add([]byte("pipeline: p\nphases: &a [{name: x, when: {all: [*a]}}, *a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, file := range []string{"f.yaml", "f.json"} {
			p, err := guardfile.ParsePipeline(file, data, nil)
			if (p == nil) == (err == nil) {
				t.Fatalf("%v and %v", p, err)
			}
			if err == nil && p.Definition.Check() != nil {
				t.Fatal("a definition that is none")
			}
		}
	})
}

// Aliases do not explode: a file of some kilobytes with millions of arguments is refused.
func TestParsePipeline_ManyByAliases(t *testing.T) {
	args := strings.Repeat("a,", 5000)
	file := "pipeline: p\nphases:\n- &p {name: a, run: [" + args + "a]}\n" + strings.Repeat("- *p\n", 60)
	if _, err := guardfile.ParsePipeline("f.yaml", []byte(file), nil); err == nil || !strings.Contains(err.Error(), "have more than 10000 items") {
		t.Errorf("got %.300v", err)
	}
	file = "pipeline: p\nphases:\n- &p {name: a}\n" + strings.Repeat("- *p\n", 20_000)
	if _, err := guardfile.ParsePipeline("f.yaml", []byte(file), nil); err == nil || !strings.Contains(err.Error(), "a pipeline has at most") {
		t.Errorf("got %.300v", err)
	}
}

// Errors of the values that were given count, too.
func TestParsePipeline_ManyUnknownValues(t *testing.T) {
	given := map[string]string{}
	for i := range 2 * guardfile.MaxErrors {
		given[fmt.Sprint("p", i)] = "v"
	}
	_, err := guardfile.ParsePipeline("f.yaml", []byte("pipeline: p\nphases: 1\n"), given)
	if err == nil || strings.Count(err.Error(), "\n")+1 != guardfile.MaxErrors {
		t.Errorf("not %d errors: %v", guardfile.MaxErrors, err)
	}
}
