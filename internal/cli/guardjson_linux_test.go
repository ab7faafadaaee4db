package cli_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/backends"
)

// decided is what guard eval, explain and wait print for programs, with every field that they have.
type decided struct {
	Guard, Outcome string
	Reasons        []struct {
		Path, Kind, Outcome string
		Decides             bool
		Want, Got           string
		Since               string
		Revision            uint64
		Source, Hint        string
	}
}

// readDecided reads one line, and refuses a field that is not known here.
func readDecided(t *testing.T, line string) (d decided) {
	t.Helper()
	r := json.NewDecoder(strings.NewReader(line))
	r.DisallowUnknownFields()
	if err := r.Decode(&d); err != nil || r.More() {
		t.Fatalf("%v: %q", err, line)
	}
	return d
}

// guarded is a file of guards, and a Space on the node that they ask.
func guarded(t *testing.T) (dir, url string, s *holdfast.Space) {
	t.Helper()
	dir, url = t.TempDir(), "holdfast://"+backends.Node(t)
	text := `guards:
  merge:
    when: {all: [{lock_free: main-branch}, {not: {file_exists: .freeze}}]}
  tag:
    when: {issues_complete: "milestone:v2"}
`
	if err := os.WriteFile(filepath.Join(dir, "g.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, url, backends.Client(t, url)
}

// With --json, eval and explain print one line for each guard, with the reason of every leaf, and exit as without it.
func TestGuard_JSON(t *testing.T) {
	dir, url, s := guarded(t)
	h, err := s.Mutex("main-branch", holdfast.Owner("ann")).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"eval", "explain"} {
		out, err := program(t, dir, "--url", url, "--json", "guard", verb, "g.yaml").Output()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if code := codeOf(t, err); code != 1 || len(lines) != 2 {
			t.Fatalf("%s: exit code %d: %s", verb, code, out)
		}
		merge, tag := readDecided(t, lines[0]), readDecided(t, lines[1])
		if merge.Guard != "merge" || merge.Outcome != "failed" || len(merge.Reasons) != 2 || tag.Guard != "tag" || tag.Outcome != "needs_input" {
			t.Fatalf("%s: %s", verb, out)
		}
		lock, file := merge.Reasons[0], merge.Reasons[1]
		if lock.Path != "all[0].lock_free" || lock.Kind != "lock_free" || lock.Outcome != "failed" || !lock.Decides || lock.Want == "" ||
			lock.Got != `held by "ann"` || lock.Since == "" || lock.Revision == 0 || lock.Source != "Inspect" || !strings.Contains(lock.Hint, "ann") {
			t.Errorf("%s: the lock: %+v", verb, lock)
		}
		if file.Path != "all[1].not.file_exists" || file.Outcome != "failed" || // its own, which is what the not wants
			file.Decides || file.Got != "no" {
			t.Errorf("%s: the file: %+v", verb, file)
		}
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	out, err := program(t, dir, "--url", url, "--json", "guard", "eval", "g.yaml", "merge").Output()
	if d := readDecided(t, string(out)); err != nil || d.Outcome != "passed" || len(d.Reasons) != 2 {
		t.Errorf("%v: %s", err, out)
	}
}

// With --json, wait prints a line each time that what it waits for changes, the last one passed; an end without that is
// an error for programs too.
func TestGuard_WaitJSON(t *testing.T) {
	t.Parallel() // it waits for what comes to nothing, and long enough to have looked
	dir, url, s := guarded(t)
	h, err := s.Mutex("main-branch", holdfast.Owner("ann")).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Error struct {
			Message, Hint string
			Exit          int `json:"exit_code"`
		}
	}
	late := program(t, dir, "--url", url, "--json", "guard", "wait", "--wait", "10s", "g.yaml", "merge")
	out, err := late.Output()
	if d := readDecided(t, string(out)); d.Outcome != "failed" {
		t.Errorf("it waits for %+v", d)
	}
	e, isExit := err.(*exec.ExitError)
	if !isExit || e.ExitCode() != 124 || json.Unmarshal(e.Stderr, &said) != nil || said.Error.Exit != 124 || !strings.Contains(said.Error.Message, `guard "merge" is still blocked after 10s`) {
		t.Errorf("%v: %+v", err, said)
	}
	wait := program(t, dir, "--url", url, "--json", "guard", "wait", "g.yaml", "merge")
	lines, ended := linesOf(t, wait)
	if d := readDecided(t, <-lines); d.Outcome != "failed" || d.Reasons[0].Got != `held by "ann"` {
		t.Errorf("it waits for %+v", d)
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	last := decided{}
	for line := range lines {
		last = readDecided(t, line)
	}
	if err := <-ended; err != nil || last.Outcome != "passed" {
		t.Errorf("%v, with %+v", err, last)
	}
}

// linesOf starts a program, and reads its lines until it ends.
func linesOf(t *testing.T, cmd *exec.Cmd) (lines chan string, ended chan error) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines, ended = make(chan string), make(chan error, 1)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
		ended <- cmd.Wait()
	}()
	return lines, ended
}
