package gather_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
)

// aboutBranch are the conditions on one branch.
func aboutBranch(name string) []guard.Condition {
	return []guard.Condition{guard.BranchExists(name), guard.BranchNotExists(name), guard.BranchMerged(name, "main"), guard.BranchMerged("main", name)}
}

// A branch that git cannot read is neither there nor not there, and the reason names it.
func TestGit_Unreadable(t *testing.T) {
	r := newRepo(t)
	ref := filepath.Join(r.dir, ".git", "refs", "heads", "feat")
	g := gather.New(gather.Config{Dir: r.dir})
	for what, text := range map[string]string{
		"empty": "", "garbage": "garbage\n", "of itself": "ref: refs/heads/feat\n", "of none": "ref: refs/heads/none\n", "null": strings.Repeat("0", 40) + "\n",
	} {
		ok(t, os.WriteFile(ref, []byte(text), 0o644))
		outcomes(t, g, map[guard.Outcome][]guard.Condition{guard.Error: aboutBranch("feat"), guard.Passed: {guard.BranchNotExists("fea"), guard.BranchNotExists("feat/x")}})
		for _, c := range aboutBranch("feat") {
			if why := g.Evaluate(t.Context(), &c).String(); !strings.Contains(why, "refs/heads/feat") {
				t.Errorf("%s: %s", what, why)
			}
		}
	}
	ok(t, os.Remove(ref))
	outcomes(t, g, map[guard.Outcome][]guard.Condition{guard.Passed: {guard.BranchNotExists("feat")}})
}

// A ref behind a link that leads nowhere, and one below a directory that cannot be looked into, are not known either. In a
// worktree the file is that of the repository.
func TestGit_UnreadablePlaces(t *testing.T) {
	r := newRepo(t)
	r.git("branch", "theirs")
	tree := filepath.Join(t.TempDir(), "tree")
	r.git("worktree", "add", "-q", tree, "theirs")
	heads := filepath.Join(r.dir, ".git", "refs", "heads")
	ok(t, os.Symlink("loop", filepath.Join(heads, "loop")))
	ok(t, os.Symlink("nowhere/none", filepath.Join(heads, "link")))
	for _, dir := range []string{r.dir, tree} {
		outcomes(t, gather.New(gather.Config{Dir: dir}), map[guard.Outcome][]guard.Condition{
			guard.Error: append(append(aboutBranch("loop"), aboutBranch("link")...), aboutBranch("loop/x")...), guard.Passed: {guard.BranchNotExists("none")},
		})
	}
}

// A damaged file of packed refs may have named the branch.
func TestGit_UnreadablePacked(t *testing.T) {
	r := newRepo(t)
	r.git("branch", "feat")
	hash := r.git("rev-parse", "feat")
	r.git("pack-refs", "--all")
	packed := filepath.Join(r.dir, ".git", "packed-refs")
	text, err := os.ReadFile(packed)
	ok(t, err)
	ok(t, os.WriteFile(packed, []byte(strings.Replace(string(text), hash+" refs/heads/feat", "zzz refs/heads/feat", 1)), 0o644))
	outcomes(t, gather.New(gather.Config{Dir: r.dir}), map[guard.Outcome][]guard.Condition{guard.Error: append(aboutBranch("feat"), aboutBranch("gone")...)})
}

// A directory of refs is no ref, with others in it, with a broken one, or left over.
func TestGit_DirectoryOfRefs(t *testing.T) {
	r := newRepo(t)
	r.git("branch", "feat/x")
	heads := filepath.Join(r.dir, ".git", "refs", "heads")
	ok(t, os.WriteFile(filepath.Join(heads, "feat", "broken"), nil, 0o644))
	ok(t, os.Mkdir(filepath.Join(heads, "left"), 0o755))
	outcomes(t, gather.New(gather.Config{Dir: r.dir}), map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.BranchNotExists("feat"), guard.BranchNotExists("left"), guard.BranchExists("feat/x")}, guard.Failed: {guard.BranchExists("feat")},
	})
}

// A ref that breaks while it is waited for is noticed.
func TestGit_BreaksMeanwhile(t *testing.T) {
	r := newRepo(t)
	g := &gather.Git{Dir: r.dir, Every: 20 * time.Millisecond}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	feat, looks := guard.Input{Source: guard.SourceBranch, Name: "feat"}, 0
	g.Follow(ctx, func() []guard.Input { return []guard.Input{feat} }, func(...guard.Input) {
		if ctx.Err() != nil { // a look that was cut off
			return
		}
		if looks++; looks == 1 {
			ok(t, os.WriteFile(filepath.Join(r.dir, ".git", "refs", "heads", "feat"), nil, 0o644))
			return
		}
		cancel()
	})
	if looks != 2 {
		t.Errorf("%d changes were told", looks)
	}
}
