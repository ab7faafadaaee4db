package gather

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// rebased reports whether each commit of a branch is in the other as a copy. Git finds the
// commits that could be copies, but by rules that leave white space out; what they change is
// compared here.
func (s *Git) rebased(ctx context.Context, branch, into string) (bool, error) {
	own, all, err := s.alike(ctx, "--right-only", into+"..."+branch)
	if err != nil || !all || len(own) == 0 {
		return false, err
	}
	copies, _, err := s.alike(ctx, "--left-only", into+"..."+branch)
	if err != nil || len(copies) == 0 {
		return false, err
	}
	wanted, err := s.patchesOf(ctx, own)
	if err != nil {
		return false, err
	}
	there, err := s.patchesOf(ctx, copies)
	missing := func(p patch) bool { return !slices.Contains(there, p) }
	if err != nil || slices.ContainsFunc(wanted, missing) {
		return false, err
	}
	return s.plainMerges(ctx, branch, into)
}

// plainMerges reports that the merges within a branch change nothing themselves, neither by a conflict
// that was resolved nor otherwise: git looks for no copies of them.
func (s *Git) plainMerges(ctx context.Context, branch, into string) (bool, error) {
	own, err := s.patches(ctx, "", "log", "--merges", "--cc", into+".."+branch, "--")
	return err == nil && len(own) == 0, err
}

// alike are the commits of one side that git takes for copies of some on the other; all: there
// are no others.
func (s *Git) alike(ctx context.Context, side, sides string) (commits []string, all bool, err error) {
	a, err := s.git(ctx, "", "rev-list", "--cherry-mark", "--no-merges", side, sides, "--")
	if err != nil || a.code != 0 {
		return nil, false, failed("rev-list", a, err)
	}
	if err := whole("rev-list", a); err != nil {
		return nil, false, err
	}
	all = true
	for line := range strings.Lines(a.out) {
		commit, is := strings.CutPrefix(strings.TrimSpace(line), "=")
		if all = all && is; is {
			commits = append(commits, commit)
		}
	}
	return commits, all, nil
}

// whole refuses an answer of which the beginning was dropped.
func whole(what string, a answer) error {
	if len(a.out) >= gitOutput {
		return fmt.Errorf("git %s says more than %d MiB: whether it is merged is not known", what, gitOutput>>20)
	}
	return nil
}

// patch stands for what a commit changes, wherever in its files.
type patch [sha256.Size]byte

// patchesOf are those of commits.
func (s *Git) patchesOf(ctx context.Context, commits []string) ([]patch, error) {
	return s.patches(ctx, strings.Join(commits, "\n")+"\n", "log", "--no-walk", "--stdin")
}

// patches are those of git diff or git log.
func (s *Git) patches(ctx context.Context, in, command string, args ...string) ([]patch, error) {
	flags := []string{command, "--no-ext-diff", "--no-textconv", "--no-color", "--full-index"}
	if command == "log" {
		flags = append(flags, "--format=commit %H", "-p", "--no-show-signature")
	}
	a, err := s.git(ctx, in, append(flags, args...)...)
	if err != nil || a.code != 0 {
		return nil, failed(command, a, err)
	}
	if err := whole(command, a); err != nil {
		return nil, err
	}
	return readPatches(a.out), nil
}

// readPatches reads what git diff says, or git log of several commits: each line of content
// has a sign in front, so that none is taken for the beginning of a commit.
func readPatches(text string) (patches []patch) {
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			patches = append(patches, sha256.Sum256([]byte(b.String())))
			b.Reset()
		}
	}
	index := ""
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "commit "):
			flush()
		case line == "\n" && b.Len() == 0, strings.HasPrefix(line, "similarity index "):
		case strings.HasPrefix(line, "index "):
			index = line // of the whole files, which may differ elsewhere
		case strings.HasPrefix(line, "Binary files "):
			b.WriteString(index + line) // nothing else tells what they are
		case strings.HasPrefix(line, "@@ "):
			b.WriteString("@@\n") // where it is does not count
		default:
			b.WriteString(line)
		}
	}
	flush()
	return patches
}
