package gather_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/guard/guardtest"
)

// repo is a repository with the branch main and one commit.
type repo struct {
	t   *testing.T
	dir string
}

func newRepo(t *testing.T) *repo {
	r := &repo{t, t.TempDir()}
	r.git("init", "-q", "-b", "main")
	r.commit("a", "first")
	return r
}

func (r *repo) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *repo) commit(file, text string) {
	r.t.Helper()
	r.write(file, text)
	r.git("add", file)
	r.git("commit", "-q", "-m", file+": "+text)
}

func (r *repo) write(file, text string) {
	r.t.Helper()
	ok(r.t, os.WriteFile(filepath.Join(r.dir, file), []byte(text+"\n"), 0o644))
}

// on makes a branch with two commits.
func (r *repo) on(branch string) {
	r.git("checkout", "-q", "-b", branch, "main")
	r.commit(branch+"-1", "one")
	r.commit(branch+"-2", "two")
	r.git("checkout", "-q", "main")
}

func TestGit(t *testing.T) {
	r := newRepo(t)
	for _, b := range []string{"ancestor", "rebased", "squashed", "half", "open"} {
		r.on(b)
	}
	r.git("merge", "-q", "--no-ff", "-m", "merge", "ancestor")
	r.git("cherry-pick", "rebased~1", "rebased")
	r.git("merge", "-q", "--squash", "squashed")
	r.git("commit", "-q", "-m", "squash")
	r.git("cherry-pick", "half~1")
	r.commit("b", "later")
	r.git("tag", "v1")
	r.git("update-ref", "refs/remotes/origin/theirs", "main")
	r.git("pack-refs", "--all")
	g := gather.New(gather.Config{Dir: r.dir})
	outcomes(t, g, map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.BranchExists("main"), guard.BranchExists("refs/remotes/origin/theirs"), guard.BranchNotExists("mai"), guard.BranchNotExists("v1"),
			guard.BranchMerged("ancestor", "main"), guard.BranchMerged("rebased", "main"), guard.BranchMerged("squashed", "main"), guard.BranchMerged("main", "main")},
		guard.Failed: {guard.BranchExists("none"), guard.BranchExists("origin/theirs"), guard.BranchNotExists("main"), guard.BranchMerged("open", "main"), guard.BranchMerged("half", "main")},
		guard.Error:  {guard.BranchMerged("gone", "main"), guard.BranchMerged("main", "gone")},
	})
}

// What differs in white space alone, or in bytes that are no text, is not merged, neither as a
// copy nor squashed; what was changed elsewhere in the same file meanwhile is.
func TestGit_MergedToTheByte(t *testing.T) {
	r := newRepo(t)
	head := strings.Repeat("line\n", 20)
	r.commit("p", head+"if a:\n  b()\nc()")
	r.commit(".gitattributes", "bin binary")
	r.commit("bin", "a")
	change := func(branch string, texts ...[2]string) {
		r.git("checkout", "-q", "-b", branch, "main")
		for _, x := range texts {
			r.commit(x[0], x[1])
		}
		r.git("checkout", "-q", "main")
	}
	indented, moved := [2]string{"p", head + "if a:\n  b()\n  c()"}, [2]string{"p", head + "if a:\n  b()\n c()"}
	change("copy", indented)
	change("squash", [2]string{"p", head + "if b:\n  b()\nc()"}, indented)
	change("binary", [2]string{"bin", "b"})
	change("same", moved, [2]string{"bin", "c"})
	r.commit("p", "first\n"+head+"if a:\n  b()\nc()")
	r.commit("p", "first\n"+head+"if a:\n  b()\n c()")
	r.commit("bin", "c")
	outcomes(t, gather.New(gather.Config{Dir: r.dir}), map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.BranchMerged("same", "main")},
		guard.Failed: {guard.BranchMerged("copy", "main"), guard.BranchMerged("squash", "main"), guard.BranchMerged("binary", "main")},
	})
}

// blocks are so many that are equal, but for those that are set.
func blocks(n int, set ...int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  x:\n    a: 1\n    b: 2\n    set: %v\n    c: 3\n    d: 4\n    e: 5\n    f: 6\n", slices.Contains(set, i))
	}
	return b.String()
}

// A change in another place of the file is none of the branch; lines that come and go elsewhere do not matter.
func TestGit_MergedInPlace(t *testing.T) {
	r := newRepo(t)
	verdicts := map[guard.Outcome][]guard.Condition{}
	change := func(want guard.Outcome, branch string, of, into [][]int, above string) {
		r.commit(branch, blocks(4))
		r.git("checkout", "-q", "-b", branch)
		for _, set := range of {
			r.commit(branch, blocks(4, set...))
		}
		r.git("checkout", "-q", "main")
		r.commit(branch, above+blocks(4)+"end")
		for _, set := range into {
			r.commit(branch, above+blocks(4, set...)+"end")
		}
		verdicts[want] = append(verdicts[want], guard.BranchMerged(branch, "main"))
	}
	change(guard.Failed, "other", [][]int{{0}}, [][]int{{2}}, "")
	change(guard.Failed, "other-moved", [][]int{{0}}, [][]int{{2}}, "1\n2\n")
	change(guard.Failed, "other-squashed", [][]int{{0, 1}, {0}}, [][]int{{2}}, "1\n2\n")
	change(guard.Failed, "one-of-two", [][]int{{0}, {0, 2}}, [][]int{{0}}, "")
	change(guard.Passed, "rebased", [][]int{{1}}, [][]int{{1}}, "1\n2\n")
	change(guard.Passed, "squashed", [][]int{{1, 3}, {1}}, [][]int{{1}}, "1\n2\n")
	change(guard.Passed, "both", [][]int{{1}, {1, 2}}, [][]int{{2}, {2, 1}}, "1\n")
	outcomes(t, gather.New(gather.Config{Dir: r.dir}), verdicts)
}

// Lines that are only added have a place, too: of a file that had none, at its end, and in other files than text by
// the attributes of the repository.
func TestGit_MergedAdditions(t *testing.T) {
	r := newRepo(t)
	same := strings.Repeat("\n", 20)
	r.commit(".gitattributes", "bytes diff")
	r.commit("list", same)
	bytes := func(before, after string) {
		r.write("bytes", "\x00"+before+after)
		r.git("add", "bytes")
		r.git("commit", "-q", "-m", "bytes")
	}
	bytes("", same)
	change := func(branch string, texts ...[2]string) {
		r.git("checkout", "-q", "-b", branch, "main")
		for _, x := range texts {
			r.commit(x[0], x[1])
		}
		r.git("checkout", "-q", "main")
	}
	change("new", [2]string{"n", "a\nb"})
	change("end", [2]string{"list", same + "\nlast"})
	change("middle", [2]string{"list", same[:8] + "added\n" + same[8:]})
	r.git("checkout", "-q", "-b", "bytes", "main")
	bytes("", same[:8]+"added\n"+same[8:])
	r.git("checkout", "-q", "main")
	r.commit("n", "a\nb")
	r.commit("list", "top\n"+same)
	r.commit("list", "top\n"+same+"\nlast")
	r.commit("list", "top\n"+same[:12]+"added\n"+same[12:]+"\nlast")
	bytes("top", same)
	bytes("top", same[:12]+"added\n"+same[12:])
	outcomes(t, gather.New(gather.Config{Dir: r.dir}), map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.BranchMerged("new", "main"), guard.BranchMerged("end", "main")},
		guard.Failed: {guard.BranchMerged("middle", "main"), guard.BranchMerged("bytes", "main")},
	})
}

// Text that is not UTF-8 is compared to the byte, too.
func TestGit_MergedLatin1(t *testing.T) {
	r := newRepo(t)
	r.commit("menu", "cafe")
	for branch, text := range map[string]string{"acute": "caf\xe9", "grave": "caf\xe8"} {
		r.git("checkout", "-q", "-b", branch, "main")
		r.commit("menu", "coffee")
		r.write("menu", text)
		r.git("commit", "-q", "-a", "-m", branch)
		r.git("checkout", "-q", "main")
	}
	r.git("merge", "-q", "--squash", "grave")
	r.git("commit", "-q", "-m", "squash")
	outcomes(t, gather.New(gather.Config{Dir: r.dir}), map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.BranchMerged("grave", "main")}, guard.Failed: {guard.BranchMerged("acute", "main")},
	})
}

// What a merge within a branch changes itself is a part of the branch that no copy of its commits has.
func TestGit_MergedWithMerges(t *testing.T) {
	r := newRepo(t)
	branches := []string{"plain", "fixed"}
	for _, branch := range branches {
		r.git("checkout", "-q", "-b", branch, "main")
		r.commit(branch, "one")
		r.git("checkout", "-q", "main")
	}
	r.commit("b", "meanwhile")
	for _, branch := range branches {
		r.git("checkout", "-q", branch)
		r.git("merge", "-q", "--no-ff", "--no-commit", "main")
		if branch == "fixed" {
			r.write(branch, "one, and what the merge needs")
		}
		r.git("commit", "-q", "-a", "-m", "merge")
		r.git("checkout", "-q", "main")
	}
	r.git("cherry-pick", "plain^1", "fixed^1")
	outcomes(t, gather.New(gather.Config{Dir: r.dir}), map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.BranchMerged("plain", "main")}, guard.Failed: {guard.BranchMerged("fixed", "main")},
	})
}

// decider has every source of this package.
var decider = gather.New(gather.Config{Issues: &gather.IssueFile{}})

// What a source that is not of this package can decide is not known.
func TestCheck_OtherSources(t *testing.T) {
	c := guard.All(guard.SessionAlive("pod:a.b"), guard.IssuesComplete("project = A"))
	if err := decider.Check(&c); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("by the sources of this package: %v", err)
	}
	if err := gather.New(gather.Config{Sources: guardtest.New().Sources()}).Check(&c); err != nil {
		t.Errorf("by others: %v", err)
	}
}

// Text that tries to become an option, another revision or a path is no branch.
func TestGit_BadNames(t *testing.T) {
	r := newRepo(t)
	evil := filepath.Join(r.dir, "evil")
	g := gather.New(gather.Config{Dir: r.dir})
	for _, name := range []string{
		"--help", "-d", "--upload-pack=touch " + evil, "--output=" + evil, "main~1", "main^", "main:a", "@{-1}", "a..main", "main evil", "a/../b", ".hidden",
		"a/.b", "x.lock", "a//b", "a/", "*", "[a]", "refs/", "a\\b", "$(touch " + evil + ")", "`touch " + evil + "`",
	} {
		for _, c := range []guard.Condition{guard.BranchExists(name), guard.BranchMerged(name, "main"), guard.BranchMerged("main", name)} {
			if err := decider.Check(&c); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%q could be decided: %v", name, err)
			}
			if res := g.Evaluate(t.Context(), &c); res.Outcome == guard.Passed || res.Outcome == guard.NeedsInput {
				t.Errorf("%q: %s", name, res)
			}
		}
	}
	if _, err := os.Stat(evil); err == nil {
		t.Error("a name was run")
	}
}

// A session that could never be found is told from one that is not there.
func TestCheck_Sessions(t *testing.T) {
	for name, want := range map[string]bool{
		"build": true, "tmux:build": true, "pid:12": true, "pid:12@34": true, "pidfile:run/web.pid": true,
		"pidfile:": false, "$0": false, "tmux:$1": false, "a$1": true,
		"pid:abc": false, "pid:0": false, "pid:12@": false, "pid:": false, "tmux:a.b": false, "tmux:": false, "a:b": false,
	} {
		c := guard.All(guard.FileExists("a"), guard.SessionAlive(name))
		if err := decider.Check(&c); (err == nil) != want || err != nil && !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A filter that is none is told from one that no issue matches.
func TestCheck_Filters(t *testing.T) {
	for filter, want := range map[string]bool{
		"milestone:v2": true, `milestone:"spring 26" label:a label:b repo:acme/app assignee:ann`: true,
		"bogus:a": false, "repo:acme": false, "repo:../x label:a": false,
		"mile:v2": false, "v2": false, "milestone:": false, `milestone:"v2`: false, "milestone:v2 milestone:v3": false,
	} {
		c := guard.Not(guard.IssuesComplete(filter))
		if err := decider.Check(&c); (err == nil) != want || err != nil && !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %v", filter, err)
		}
	}
}

// A path that no file can have, or that only a shell understands, is told from one that has no file.
func TestCheck_Files(t *testing.T) {
	part := strings.Repeat("n", 255)
	for path, want := range map[string]bool{
		"a/b": true, part + "/" + part: true, part + "n": false, "a/" + part + "n/b": false, strings.Repeat("/a", 2047): true, strings.Repeat("/a", 2048): false,
		"~": false, "~/freeze": false, "~ann/freeze": false, "$HOME/freeze": false, "./~": true, "a~": true, "a/$b": true,
	} {
		for _, c := range []guard.Condition{guard.FileExists(path), guard.FileNotExists(path)} {
			if err := decider.Check(&c); (err == nil) != want || err != nil && !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%.20q, %d bytes: %v", path, len(path), err)
			}
		}
		c := guard.SessionAlive("pidfile:" + path)
		if err := decider.Check(&c); (err == nil) != (want && len(c.Name) <= 4096) { // a text of a condition has no more
			t.Errorf("pidfile:%.20s, %d bytes: %v", path, len(path), err)
		}
	}
}

// A repository that is missing is an error; one that is locked by another git is read all
// the same; what its configuration wants to run is not run.
func TestGit_BadRepositories(t *testing.T) {
	bare := gather.New(gather.Config{Dir: t.TempDir()})
	gone := gather.New(gather.Config{Dir: filepath.Join(t.TempDir(), "gone")})
	for _, g := range []*gather.Gatherer{bare, gone} {
		outcomes(t, g, map[guard.Outcome][]guard.Condition{guard.Error: {guard.BranchExists("main"), guard.BranchMerged("a", "main")}})
	}
	r := newRepo(t)
	r.on("open")
	evil := filepath.Join(r.dir, "evil")
	r.git("config", "diff.external", "touch "+evil)
	r.git("config", "core.fsmonitor", "touch "+evil)
	ok(t, os.WriteFile(filepath.Join(r.dir, ".git", "index.lock"), nil, 0o644))
	ok(t, os.WriteFile(filepath.Join(r.dir, ".git", "packed-refs.lock"), nil, 0o644))
	outcomes(t, gather.New(gather.Config{Dir: r.dir}), map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.BranchExists("main")}, guard.Failed: {guard.BranchMerged("open", "main")},
	})
	if _, err := os.Stat(evil); err == nil {
		t.Error("a program of the repository's configuration was run")
	}
}

// Beside many branches git is run as often as beside two, and reads as few refs: it is asked for those that are named.
func TestGit_Huge(t *testing.T) {
	r := newRepo(t)
	r.on("open")
	look := func() {
		outcomes(t, gather.New(gather.Config{Dir: r.dir}), map[guard.Outcome][]guard.Condition{
			guard.Passed: {guard.BranchExists("main")}, guard.Failed: {guard.BranchMerged("open", "main")},
		})
	}
	few := gitRuns(t, look)
	var b strings.Builder
	hash := r.git("rev-parse", "main")
	for i := range 4000 {
		b.WriteString("create refs/heads/many/" + strings.Repeat("x", i%50) + "/" + time.Duration(i).String() + " " + hash + "\n")
	}
	cmd := exec.Command("git", "-c", "core.fsync=none", "update-ref", "--stdin")
	cmd.Dir, cmd.Stdin = r.dir, strings.NewReader(strings.ReplaceAll(b.String(), "//", "/o/"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if many := gitRuns(t, look); len(few) == 0 || !slices.Equal(many, few) {
		t.Errorf("beside 4,000 branches git was run as\n%s\nand beside two as\n%s", strings.Join(many, "\n"), strings.Join(few, "\n"))
	}
}

// gitRuns are the runs of git during a look: the arguments of each, and how many bytes it said.
func gitRuns(t *testing.T, look func()) []string {
	t.Helper()
	program := must[string](t)(exec.LookPath("git"))
	dir := t.TempDir()
	script := "#!/bin/sh\nout=$(mktemp " + dir + "/out.XXXXXX)\n" + program + ` "$@" >"$out"; code=$?` + "\n" +
		`printf '%s: %s bytes\n' "$(printf '%s ' "$@" | tr '\n' ' ')" "$(wc -c <"$out")" >>` + dir + "/runs\ncat \"$out\"\nexit $code\n"
	ok(t, os.WriteFile(filepath.Join(dir, "git"), []byte(script), 0o755))
	path := os.Getenv("PATH")
	t.Setenv("PATH", dir+":"+path)
	look()
	t.Setenv("PATH", path)
	runs := must[[]byte](t)(os.ReadFile(filepath.Join(dir, "runs")))
	return slices.Sorted(strings.Lines(string(runs)))
}

// A merge wakes what waits for it.
func TestGit_Wakes(t *testing.T) {
	r := newRepo(t)
	r.on("b")
	g := gather.New(gather.Config{Git: &gather.Git{Dir: r.dir, Every: 20 * time.Millisecond}})
	c := guard.BranchMerged("b", "main")
	merged := false
	_, err := g.Wait(t.Context(), &c, gather.WaitOptions{Recheck: time.Hour, Told: func(guard.Result) {
		if !merged {
			merged = true
			r.git("merge", "-q", "b")
		}
	}})
	ok(t, err)
}
