package gather

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
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
	if err != nil {
		return false, err
	}
	for _, p := range wanted {
		if is, err := s.among(ctx, p, there); !is {
			return false, err
		}
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
func readPatches(text string) []patch {
	r := &patchReader{}
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "commit "):
			r.flush()
		case line == "\n" && r.b.Len() == 0, strings.HasPrefix(line, "similarity index "):
		case strings.HasPrefix(line, "index "):
			r.file(line)
		case strings.HasPrefix(line, "Binary files "):
			r.b.WriteString(r.index + line) // nothing else tells what they are
		case strings.HasPrefix(line, "@@ "):
			r.hunk(line)
		default:
			r.line(line)
		}
	}
	r.flush()
	return r.all
}

// patchReader is where readPatches is.
type patchReader struct {
	all   []patch
	b     strings.Builder // the text of the patch
	files []changedFile   // and its files
	index string          // of the whole files, which may differ elsewhere
	at    int             // the line of the file before that comes next; 0: not within its changes
	open  bool            // the line before is of the last edit, too
}

func (r *patchReader) flush() {
	if r.b.Len() > 0 {
		r.all = append(r.all, patch{sha256.Sum256([]byte(r.b.String())), r.files})
	}
	r.b.Reset()
	r.files, r.at, r.open = nil, 0, false
}

// file begins one by its line "index before..after".
func (r *patchReader) file(line string) {
	before, _, _ := strings.Cut(strings.TrimPrefix(line, "index "), "..")
	r.index, r.files = line, append(r.files, changedFile{before: before})
}

// hunk begins one by its line "@@ -begin,length +begin,length @@"; one without a length has 1, and one of 0 begins after
// its line. Where it is does not count for the text.
func (r *patchReader) hunk(line string) {
	r.b.WriteString("@@\n")
	old, _, _ := strings.Cut(strings.TrimPrefix(line, "@@ -"), " ")
	begin, length, _ := strings.Cut(old, ",")
	r.at, _ = strconv.Atoi(begin)
	if length == "0" {
		r.at++
	}
	r.open = false
}

// line is one of a change, or of what stands before the changes of a file.
func (r *patchReader) line(line string) {
	r.b.WriteString(line)
	switch {
	case strings.HasPrefix(line, "diff "):
		r.at = 0
	case r.at == 0 || len(r.files) == 0:
	case line[0] == '-' || line[0] == '+':
		r.edit(line[0] == '-')
	case line[0] != '\\': // which tells that the last line has no end
		r.at, r.open = r.at+1, false
	}
}

// edit makes the last one longer, or begins one.
func (r *patchReader) edit(gone bool) {
	f := &r.files[len(r.files)-1]
	if !r.open {
		f.edits, r.open = append(f.edits, edit{line: r.at}), true
	}
	if e := &f.edits[len(f.edits)-1]; gone {
		e.gone++
		r.at++
	} else {
		e.come++
	}
}
