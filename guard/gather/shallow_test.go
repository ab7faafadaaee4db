package gather_test

import (
	"os"
	"path/filepath"
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
