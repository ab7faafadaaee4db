package gather

import (
	"context"
	"crypto/sha256"
	"fmt"
)

// patch is what a commit changes: a text that says nothing of where in its files, and the files, which do. Patches
// of the same text have as many files, with as many edits of the same lengths.
type patch struct {
	text  [sha256.Size]byte
	files []changedFile
}

// changedFile is one of a patch: the name of its blob before, and what was changed in that, from the first line to the last.
type changedFile struct {
	before string
	edits  edits
}

// edit is so many lines that are gone, from a line of the file before on, counted from 1, and so many that came instead.
type edit struct{ line, gone, come int }

// among reports that one of the patches is the same, in the same places.
func (s *Git) among(ctx context.Context, p patch, there []patch) (bool, error) {
	for _, q := range there {
		if q.text != p.text {
			continue
		}
		if is, err := s.samePlaces(ctx, p, q); is || err != nil {
			return is, err
		}
	}
	return false, nil
}

// samePlaces reports that a patch of the same text changes the same places: those that its own become by what else
// distinguishes the files before, as lines that were added above.
func (s *Git) samePlaces(ctx context.Context, p, q patch) (bool, error) {
	for i, f := range p.files {
		between, err := s.between(ctx, f.before, q.files[i].before)
		if err != nil {
			return false, err
		}
		for j, e := range f.edits {
			if !between.moves(e, q.files[i].edits[j].line) {
				return false, nil
			}
		}
	}
	return true, nil
}

// edits lead from one file to another, the first line first.
type edits []edit

// between are those from one blob to another, as git finds them when it merges.
func (s *Git) between(ctx context.Context, a, b string) (edits, error) {
	if a == b {
		return nil, nil
	}
	list, err := s.patches(ctx, "", "diff", "--text", "--diff-algorithm=histogram", "--no-indent-heuristic", a, b, "--")
	if err == nil && (len(list) != 1 || len(list[0].files) != 1) {
		err = fmt.Errorf("git diff of %.12s and %.12s is no diff of two files: whether it is merged is not known", a, b)
	}
	if err != nil {
		return nil, err
	}
	return list[0].files[0].edits, nil
}

// moves reports that an edit of the one file is at a line of the other: its first line is the same there, or its last; or of
// an edit that only adds, the line after it or before it.
func (es edits) moves(e edit, to int) bool {
	last := e.line + e.gone - 1
	return es.line(e.line) == to || es.line(last) == to+last-e.line
}

// line is which line of the other file a line of the one is; -1: it is not there. Before the first is 0 in both.
func (es edits) line(n int) int {
	moved := n
	for _, e := range es {
		switch {
		case n < e.line:
			return moved
		case n < e.line+e.gone:
			return -1
		}
		moved += e.come - e.gone
	}
	return moved
}
