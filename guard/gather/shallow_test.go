package gather_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
)

// shallow is a clone of r with so many commits of each branch.
func (r *repo) shallow(depth string) *repo {
	r.t.Helper()
	c := &repo{r.t, filepath.Join(r.t.TempDir(), "clone")}
	r.git("clone", "-q", "--bare", "--no-single-branch", "--depth", depth, "file://"+r.dir, c.dir)
	return c
}

// In a shallow clone only what commits that are there tell is known: a branch may be merged by one that is not.
func TestGit_Shallow(t *testing.T) {
	r := newRepo(t)
	r.on("merged")
	r.on("squashed")
	r.on("old")
	r.git("merge", "-q", "--no-ff", "-m", "merge", "merged")
	for _, text := range []string{"1", "2", "3", "4"} {
		r.commit("b", text)
	}
	r.git("merge", "-q", "--squash", "squashed")
	r.git("commit", "-q", "-m", "squash")
	r.on("open")
	r.git("branch", "part", "main~1")
	r.commit("c", "last")
	in := func(c *repo, want map[guard.Outcome][]guard.Condition) {
		t.Helper()
		outcomes(t, gather.New(gather.Config{Dir: c.dir}), want)
	}
	merged, squashed, old, open := guard.BranchMerged("merged", "main"), guard.BranchMerged("squashed", "main"), guard.BranchMerged("old", "main"), guard.BranchMerged("open", "main")
	in(r, map[guard.Outcome][]guard.Condition{guard.Passed: {merged, squashed, guard.BranchMerged("part", "main")}, guard.Failed: {old, open}})
	in(r.shallow("1"), map[guard.Outcome][]guard.Condition{
		guard.Error: {merged, squashed, old, open, guard.Not(merged), guard.Not(squashed), guard.Not(open)}, guard.Passed: {guard.BranchExists("open"), guard.BranchNotExists("none")},
	})
	in(r.shallow("3"), map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.BranchMerged("part", "main"), guard.Not(open)}, guard.Failed: {open}, // they parted after the cut
		guard.Error: {guard.Not(old), guard.Not(squashed)},
	})
	in(r.shallow("100"), map[guard.Outcome][]guard.Condition{guard.Passed: {merged, squashed}, guard.Failed: {old, open}})
}

// A partial clone lacks what commits change, and git would fetch it, by whatever program the configuration of the repository
// names. A look fetches nothing, and says so.
func TestGit_Partial(t *testing.T) {
	r := newRepo(t)
	r.on("merged")
	r.on("open")
	r.git("merge", "-q", "--no-ff", "-m", "merge", "merged")
	r.git("config", "uploadpack.allowFilter", "true")
	c, evil := &repo{t, filepath.Join(t.TempDir(), "clone")}, filepath.Join(t.TempDir(), "evil")
	r.git("clone", "-q", "--no-checkout", "--filter=blob:none", "file://"+r.dir, c.dir)
	c.git("branch", "-q", "merged", "origin/merged")
	c.git("branch", "-q", "open", "origin/open")
	c.git("config", "protocol.ext.allow", "always")
	c.git("config", "remote.origin.url", "ext::touch "+evil)
	g, open := gather.New(gather.Config{Dir: c.dir}), guard.BranchMerged("open", "main")
	outcomes(t, g, map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.BranchMerged("merged", "main"), guard.BranchExists("open")}, guard.Error: {open, guard.Not(open)},
	})
	if got := g.Evaluate(t.Context(), &open).Reasons[0].Got; !strings.Contains(got, "a partial clone") || !strings.Contains(got, "git fetch --refetch") {
		t.Errorf("it says %q", got)
	}
	if _, err := os.Stat(evil); err == nil {
		t.Error("a program of the repository's configuration was run")
	}
	c.git("config", "remote.origin.url", "file://"+r.dir)
	c.git("fetch", "-q", "--refetch", "--no-filter")
	outcomes(t, g, map[guard.Outcome][]guard.Condition{guard.Failed: {open}})
}

// A file of grafts changes nothing, as replaced commits do not.
func TestGit_Grafts(t *testing.T) {
	r := newRepo(t)
	r.on("merged")
	r.on("open")
	r.git("merge", "-q", "--no-ff", "-m", "merge", "merged")
	ok(t, os.MkdirAll(filepath.Join(r.dir, ".git/info"), 0o700))
	grafts := r.git("rev-parse", "main") + "\n" + r.git("rev-parse", "main~1") + " " + r.git("rev-parse", "open") + "\n"
	ok(t, os.WriteFile(filepath.Join(r.dir, ".git/info/grafts"), []byte(grafts), 0o600))
	outcomes(t, gather.New(gather.Config{Dir: r.dir}), map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.BranchMerged("merged", "main")}, guard.Failed: {guard.BranchMerged("open", "main")},
	})
}
