package gather_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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

// A path that no file can have is told from one that has no file.
func TestCheck_Files(t *testing.T) {
	part := strings.Repeat("n", 255)
	for path, want := range map[string]bool{
		"a/b": true, part + "/" + part: true, part + "n": false, "a/" + part + "n/b": false, strings.Repeat("/a", 2047): true, strings.Repeat("/a", 2048): false,
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

// Many branches and commits take bounded time.
func TestGit_Huge(t *testing.T) {
	r := newRepo(t)
	r.on("open")
	var b strings.Builder
	hash := r.git("rev-parse", "main")
	for i := range 4000 {
		b.WriteString("create refs/heads/many/" + strings.Repeat("x", i%50) + "/" + time.Duration(i).String() + " " + hash + "\n")
	}
	cmd := exec.Command("git", "update-ref", "--stdin")
	cmd.Dir, cmd.Stdin = r.dir, strings.NewReader(strings.ReplaceAll(b.String(), "//", "/o/"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	outcomes(t, gather.New(gather.Config{Dir: r.dir}), map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.BranchExists("main")}, guard.Failed: {guard.BranchMerged("open", "main")},
	})
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
