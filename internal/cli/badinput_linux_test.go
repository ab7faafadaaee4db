package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// bad runs the program over a file, and expects it to end soon, with a code and a reason.
func bad(t *testing.T, dir, what, text, args string, code int, says ...string) {
	t.Helper()
	file := "bad.yaml"
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	out, err := program(t, dir, append(strings.Fields(args), file)...).CombinedOutput()
	if got := codeOf(t, err); got != code || time.Since(began) > time.Minute {
		t.Errorf("%s: exit code %d after %s: %s", what, got, time.Since(began), out)
	}
	for _, said := range says {
		if !strings.Contains(string(out), said) {
			t.Errorf("%s: it does not say %q: %s", what, said, out)
		}
	}
}

// "Bad input, each a reason with file and line, never a hang or panic: unknown fields, cycles, exploding aliases, wrong
// types, missing parameters, text that tries to become shell or git options".
func TestBadInput_Files(t *testing.T) {
	dir := t.TempDir()
	guards := func(when string) string { return "guards:\n  g:\n    when: " + when + "\n" }
	pipe := func(phase string) string {
		return "pipeline: p\nparams: {b: {type: string}}\nphases:\n  - " + phase + "\n"
	}
	explodes := "guards:\n  g0: {when: &a0 {all: []}}\n"
	for i := 1; i <= 30; i++ {
		explodes += fmt.Sprintf("  g%d: {when: &a%d {all: [*a%d, *a%d]}}\n", i, i, i-1, i-1)
	}
	lint, check, long := "guard lint", "pipeline run --check", strings.Repeat("n", 600)
	for _, c := range []struct {
		what, text, args string
		code             int
		says             string
	}{
		{"unknown fields", guards("{lock_fre: a}"), lint, 1, "bad.yaml:3:12: a condition does not know \"lock_fre\"; did you mean lock_free?"},
		{"unknown fields", guards("{lock_free: {name: a, nmae: b}}"), lint, 1, "bad.yaml:3:33: lock_free does not know \"nmae\""},
		{"unknown fields", pipe("{name: a, rn: [make]}"), check, 64, "bad.yaml:4:15: a phase does not know \"rn\"; did you mean run?"},
		{"cycles", guards("&a {not: *a}"), lint, 1, "bad.yaml:3:11: this condition is within itself, by an alias"},
		{"cycles", pipe("{name: a, on_failure: a}"), check, 64, "bad.yaml:4:5: pipeline \"p\": phase \"a\": on failure it goes to \"a\", which is no later phase"},
		{"cycles", "pipeline: p\nphases: &a [*a]\n", check, 64, "bad.yaml:2:9: a phase wants a mapping, this is a list"},
		{"exploding aliases", explodes, lint, 1, "conditions, with its aliases written out"},
		{"exploding aliases", "pipeline: p\nphases:\n- &p {name: a, run: [" + strings.Repeat("a,", 5000) + "a]}\n" + strings.Repeat("- *p\n", 60), check, 64, "bad.yaml:3:"},
		{"wrong types", guards("{lock_free: 12}"), lint, 1, "bad.yaml:3:23: lock_free.name wants a text, this is a whole number"},
		{"wrong types", guards("{all: {lock_free: a}}"), lint, 1, "bad.yaml:3:17: all wants a list, this is a mapping"},
		{"wrong types", pipe("{name: a, run: make}"), check, 64, "bad.yaml:4:20: run wants a list, this is a text"},
		{"wrong types", pipe("{name: a, wait: 5}"), check, 64, "bad.yaml:4:21: wait: \"5\" has no unit: write 5s"},
		{"names that are too long", guards("{lock_free: " + long + "}"), lint, 1, "bad.yaml:3:12: guard: lock_free: the name has 600 bytes; at most 512 are allowed"},
		{"names that are too long", pipe("{name: a, when: {lock_free: " + long + "}}"), check, 64, "bad.yaml:4:22: guard: lock_free: the name has 600 bytes; at most 512 are allowed"},
		{"names that are too long", guards("{file_exists: " + long + "}"), lint, 1, "bad.yaml:2:3: a part of the path has 600 bytes; at most 255 are possible"},
		{"filters that are none", guards("{issues_complete: 'bogus:a'}"), lint, 1, "bad.yaml:2:3: the filter \"bogus:a\": \"bogus\" is none of milestone"},
		{"filters that are none", guards("{issues_complete: 'milestone:'}"), lint, 1, "bad.yaml:2:3: the filter \"milestone:\": \"milestone:\" is not key:value"},
		{"missing parameters", pipe("{name: a, run: [echo, '${b}']}"), "pipeline run", 64, "bad.yaml:2:10: the parameter \"b\" has no value"},
		{"missing parameters", pipe("{name: a, run: [echo, '${c}']}"), check, 64, "bad.yaml:4:27: there is no parameter \"c\""},
		{"text that tries to become shell", pipe("{name: a, run: [sh, -c, 'echo ${b}']}"), check, 64, "bad.yaml:4:29: a parameter would become text of a shell"},
		{"text that tries to become shell", pipe("{name: a, when: {custom_check: 'test ${b}'}}"), check, 64, "bad.yaml:4:36: custom_check.command: a parameter would become a part of the command"},
		{"text that tries to become git options", guards("{branch_exists: --upload-pack=x}"), lint, 1, "bad.yaml:2:3: \"--upload-pack=x\" is no name of a branch"},
		{"text that tries to become git options", pipe("{name: a, run: [git, merge, '${b}']}"), "pipeline run --param b=--upload-pack=x", 64, "bad.yaml:2:10: the parameter \"b\": \"--upload-pack=x\" begins with -"},
		{"text that tries to become git options", pipe("{name: a, when: {branch_exists: '${b}'}}"), "pipeline run --param b=a..b", 64, "bad.yaml:4:5: phase \"a\": \"a..b\" is no name of a branch"},
		{"a verb that no event has", pipe("{name: a, wake_on: ['kv:changed']}"), check, 64, "bad.yaml:4:5: phase \"a\": wake_on: guard: the pattern \"kv:changed\": no event of kv has the verb \"changed\", only put delete"},
		{"events that there are not", pipe("{name: a, wake_on: ['lck:x:*']}"), check, 64, "bad.yaml:4:5: phase \"a\": wake_on: guard: the pattern \"lck:x:*\": there is no kind \"lck\""},
		{"times without a unit", pipe("{name: a, wait: '${b}'}"), "pipeline run --param b=soon", 64, "bad.yaml:4:21: wait: \"soon\" is not a duration such as \"90s\" or \"2h\"; ${b} stands there"},
	} {
		bad(t, dir, c.what, c.text, c.args, c.code, c.says)
	}
}

// The same of what is found out: "commands that never end or daemonize, repositories missing, huge or locked, files
// vanishing". What is huge is for package gather.
func TestBadInput_Facts(t *testing.T) {
	dir := t.TempDir()
	guards := func(when string) string { return "guards:\n  g:\n    when: " + when + "\n" }
	explain := "guard explain --commands"
	evil := filepath.Join(dir, "evil")
	bad(t, dir, "text that tries to become shell", guards("{custom_check: 'true; touch "+evil+"'}"), explain, 1, "has characters of a shell, and none reads it")
	if _, err := os.Stat(evil); err == nil {
		t.Error("a shell has read it")
	}
	bad(t, dir, "commands that never end", guards("{custom_check: sleep 600}"), explain+" --timeout 500ms", 1, "g: error", "did not end in time and was ended")
	bad(t, dir, "or daemonize", guards("{custom_check: setsid --fork sleep 3}"), explain, 0, "g: passed")
	bad(t, dir, "repositories missing", guards("{branch_exists: main}"), "guard explain", 1, "g: error", "not a git repository")
	bad(t, dir, "repositories missing", guards("{branch_exists: main}"), "guard explain --dir gone", 1, "g: error", "no such file or directory")
	if out, err := exec.Command("git", "init", "-q", "-b", "main", filepath.Join(dir, "repo")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, lock := range []string{"index.lock", "packed-refs.lock", "HEAD.lock"} {
		if err := os.WriteFile(filepath.Join(dir, "repo", ".git", lock), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bad(t, dir, "or locked", guards("{branch_not_exists: other}"), "guard explain --dir repo", 0, "g: passed")
	bad(t, dir, "files vanishing", guards("{issues_complete: 'milestone:v2'}"), "guard explain --issues gone.json", 1, "g: error", "gone.json: no such file or directory")
	out, err := program(t, dir, "guard", "lint", "gone.yaml").CombinedOutput()
	if code := codeOf(t, err); code != 1 || !strings.Contains(string(out), "gone.yaml: no such file or directory") {
		t.Errorf("a file that is not there: exit code %d: %s", code, out)
	}
}

// "GitHub (by httptest) answering 403, 404, 429, 500, slowly, garbage, endless pages".
func TestBadInput_GitHub(t *testing.T) {
	dir := t.TempDir()
	for what, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"403":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, "403 Forbidden"},
		"404":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, "it is not there, or the token may not see it"},
		"429":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, "it is asked again in 1m0s"},
		"500":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "500 Internal Server Error"},
		"slowly":  {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "context deadline exceeded"},
		"garbage": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "the answer is not the JSON of GitHub"},
		"endless pages": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "[%s{\"state\":\"closed\"}]", strings.Repeat(`{"state":"closed"},`, 99))
		}, "more than 5000 issues"},
	} {
		srv := httptest.NewServer(c.answer)
		timeout := " --timeout 1m"
		if what == "slowly" {
			timeout = " --timeout 1s"
		}
		bad(t, dir, what, "guards:\n  g:\n    when: {issues_complete: 'label:x'}\n", "guard explain --repo acme/app --github "+srv.URL+timeout, 1, "g: error", c.says)
		srv.Close()
	}
}
