package gather

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/guard"
)

// Git asks a repository by the git program, which is given full names of refs only.
//
// A branch is merged if its last commit is an ancestor of the other's, if each of its
// commits is there as a copy and its merges change nothing themselves (rebase), or if one
// of the last 1,000 commits since they parted changes the same as the whole branch (squash).
// The same is the same to the byte, where white space counts, and in the same place of each file, which lines that
// came or went elsewhere in it may move. A branch that does not exist is an
// error: nothing is known of its commits any more. So is one that is not found to be merged by a history that is
// cut off since they parted, as in a shallow clone, or in a partial clone without what they change, which is not fetched. A branch that git cannot read is an error in every condition: whether it
// exists is not known.
type Git struct {
	// Dir is the repository, or a directory within; empty: the working directory.
	Dir string
	// Every is how often refs are looked at while somebody waits for them; default 1 s.
	Every time.Duration

	facts shared[guard.Input, guard.Fact]
}

// Find asks git.
func (s *Git) Find(ctx context.Context, inputs []guard.Input) guard.Inputs {
	return each(ctx, inputs, func(ctx context.Context, in guard.Input) (guard.Fact, error) {
		return s.facts.ask(ctx, in, func() (guard.Fact, error) { return s.fact(ctx, in) })
	})
}

func (s *Git) fact(ctx context.Context, in guard.Input) (guard.Fact, error) {
	f := guard.Fact{From: "git in " + orText(s.Dir, ".")}
	hash, err := s.commit(ctx, in.Name)
	switch {
	case err != nil:
		return f, err
	case in.Source == guard.SourceBranch:
		f.Is = hash != ""
		return f, nil
	}
	into, err := s.commit(ctx, in.Other)
	if err == nil {
		err = both(hash, in.Name, into, in.Other)
	}
	if err == nil {
		f.Is, f.Text, err = s.merged(ctx, hash, into)
	}
	if err == nil && !f.Is {
		err = s.uncut(ctx, hash, into)
	}
	return f, err
}

// Follow looks every so often whether a ref has changed: that costs one run of git,
// however many branches are waited for.
func (s *Git) Follow(ctx context.Context, wanted func() []guard.Input, changed func(...guard.Input)) {
	before := ""
	poll(ctx, orElse(s.Every, time.Second), wanted, func(inputs ...guard.Input) {
		ctx, cancel := context.WithTimeout(ctx, longestGit)
		defer cancel()
		a, err := s.git(ctx, "", "for-each-ref", "--format=%(objectname) %(refname)")
		now := fmt.Sprint(a.out, a.errOut, a.code, err) // of one that is broken only a warning tells
		if now != before {
			before = now
			changed(inputs...)
		}
	})
}

// longestGit bounds one look at the refs.
const longestGit = 10 * time.Second

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func both(a, nameA, b, nameB string) error {
	switch {
	case a == "":
		return fmt.Errorf("there is no branch %q (any more)", nameA)
	case b == "":
		return fmt.Errorf("there is no branch %q", nameB)
	}
	return nil
}

// refOf is the full name of a branch: refs/… is one already.
func refOf(branch string) (string, error) {
	ref := branch
	if !strings.HasPrefix(ref, "refs/") {
		ref = "refs/heads/" + branch
	}
	bad := strings.ContainsAny(branch, " ~^:?*[\\\x7f") || strings.Contains(branch, "..") || strings.Contains(branch, "@{") ||
		strings.Contains(ref, "//") || strings.HasSuffix(branch, "/") || strings.HasSuffix(branch, ".") || strings.HasSuffix(branch, ".lock") || branch == ""
	for part := range strings.SplitSeq(ref, "/") {
		bad = bad || strings.HasPrefix(part, ".")
	}
	for _, r := range branch {
		bad = bad || r < ' '
	}
	if bad || strings.HasPrefix(branch, "-") {
		return "", fmt.Errorf("%q is no name of a branch", branch)
	}
	return ref, nil
}

// commit is the hash of a branch's last commit; empty: there is no such branch.
func (s *Git) commit(ctx context.Context, branch string) (string, error) {
	ref, err := refOf(branch)
	if err != nil {
		return "", err
	}
	hash, err := s.find(ctx, ref)
	if err != nil || hash != "" {
		return hash, err
	}
	if unknown := s.absent(ctx, ref); unknown != nil {
		hash, err = s.find(ctx, ref) // it may have been made meanwhile
		if err == nil && hash == "" {
			err = unknown
		}
	}
	return hash, err
}

// find is the hash of a ref's commit; empty: git finds no such ref.
func (s *Git) find(ctx context.Context, ref string) (string, error) {
	a, err := s.git(ctx, "", "show-ref", "--verify", "--hash", "--", ref)
	if err == nil && a.code == 0 {
		a, err = s.git(ctx, "", "rev-parse", "--verify", "--quiet", "--end-of-options", strings.TrimSpace(a.out)+"^{commit}")
		if err == nil && a.code != 0 {
			err = fmt.Errorf("%s points to no commit", ref)
		}
		return strings.TrimSpace(a.out), err
	}
	if err == nil && strings.Contains(a.errOut, "not a valid ref") {
		return "", nil
	}
	return "", failed("show-ref", a, err)
}

// merged says how, as the text.
func (s *Git) merged(ctx context.Context, branch, into string) (bool, string, error) {
	a, err := s.git(ctx, "", "merge-base", "--is-ancestor", branch, into)
	if err != nil || a.code > 1 {
		return false, "", failed("merge-base", a, err)
	}
	if a.code == 0 {
		return true, "an ancestor", nil
	}
	if is, err := s.rebased(ctx, branch, into); is || err != nil {
		return is, "rebased", err
	}
	return s.squashed(ctx, branch, into)
}

func (s *Git) squashed(ctx context.Context, branch, into string) (bool, string, error) {
	a, err := s.git(ctx, "", "merge-base", branch, into)
	if err != nil || a.code > 1 {
		return false, "", failed("merge-base", a, err)
	}
	if a.code == 1 {
		return false, "no common commit", nil
	}
	base := strings.TrimSpace(a.out)
	whole, err := s.patches(ctx, "", "diff", base, branch, "--")
	if err != nil || len(whole) != 1 {
		return false, "", err
	}
	there, err := s.patches(ctx, "", "log", "--no-merges", "--max-count=1000", base+".."+into, "--")
	if err != nil {
		return false, "", err
	}
	if is, err := s.among(ctx, whole[0], there); !is {
		return false, "", err
	}
	return true, "squashed", nil
}

// uncut is the error of a branch that is not merged, as far as is known, if the history since they parted is cut off, as in a
// shallow clone: the commits that are not there could be those that merge it. One that is cut off before they parted is enough.
func (s *Git) uncut(ctx context.Context, branch, into string) error {
	a, err := s.git(ctx, "", "rev-list", "--pretty=raw", "--max-parents=0", into+"..."+branch, "--")
	if err != nil || a.code != 0 {
		return failed("rev-list", a, err)
	}
	commit := ""
	for line := range strings.Lines(a.out) { // those of a message are indented
		if name, is := strings.CutPrefix(line, "commit "); is {
			commit = strings.TrimSpace(name)
		}
		if strings.HasPrefix(line, "parent ") { // in the object, and git does not go there
			return fmt.Errorf("the history is cut off at %.12s, as in a shallow clone: whether it is merged is not known; git fetch --unshallow gets the rest", commit)
		}
	}
	return whole("rev-list", a)
}

func failed(what string, a answer, err error) error {
	if err == nil {
		err = errors.New(reasonOf(a.errOut))
	}
	return fmt.Errorf("git %s: %w", what, err)
}

// reasonOf is why git has failed: what comes after that line are hints.
func reasonOf(errOut string) string {
	if strings.Contains(errOut, "promisor remote") || strings.Contains(errOut, "lazy fetching disabled") {
		return "objects are missing, as in a partial clone, and a look fetches none; git fetch --refetch --no-filter gets them"
	}
	for line := range strings.Lines(errOut) {
		if strings.HasPrefix(line, "fatal: ") {
			return lastLine(line)
		}
	}
	return lastLine(errOut)
}

// gitOutput is the most that git may say.
const gitOutput = 16 << 20

// git runs it without what its environment, or a terminal, might add. It fetches nothing: in a partial clone it would, by
// whatever program the configuration of the repository names.
func (s *Git) git(ctx context.Context, in string, args ...string) (answer, error) {
	p := process{of: "git in " + orText(s.Dir, "."), argv: append([]string{"git", "--no-pager", "--literal-pathspecs", "-c", "core.fsmonitor=false"}, args...), dir: s.Dir, in: in, most: gitOutput}
	p.env = append(plainEnv(), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_GRAFT_FILE="+os.DevNull, // the history as it was committed
		"GIT_ALLOW_PROTOCOL=", "GIT_NO_LAZY_FETCH=1")
	if err := there(ctx, orText(s.Dir, ".")); err != nil {
		return answer{}, err
	}
	return p.run(ctx)
}
