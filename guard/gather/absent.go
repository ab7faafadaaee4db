package gather

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// absent is nil if a ref which git does not find is not there. Git also does not find one that it cannot read: whether that
// is there is not known. So it lists them all, which tells of those that are broken and of a damaged file of packed ones, and
// the file of the ref is looked for, which git is silent about if a directory above it may not be read.
func (s *Git) absent(ctx context.Context, ref string) error {
	a, err := s.git(ctx, "", "for-each-ref", "--format=%(refname)")
	if err != nil || a.code != 0 {
		return failed("for-each-ref", a, err)
	}
	for line := range strings.Lines(a.errOut) {
		if strings.HasSuffix(strings.TrimSpace(line), " "+ref) { // names of refs have no blanks
			return fmt.Errorf("git cannot read %s: %s; mend or delete it", ref, lastLine(line))
		}
	}
	return s.noFile(ctx, ref)
}

// noFile is the error of a ref that is a file, or may be one. A directory is none: it has, or had, refs with longer names.
func (s *Git) noFile(ctx context.Context, ref string) error {
	a, err := s.git(ctx, "", "rev-parse", "--git-path", ref)
	if err != nil || a.code != 0 {
		return failed("rev-parse", a, err)
	}
	path := under(s.Dir, strings.TrimSuffix(a.out, "\n"))
	info, err := within(ctx, path, func() (fs.FileInfo, error) { return os.Lstat(path) })
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("git does not find %s, and its file is there: mend or delete %s", ref, path)
	case err != nil && !missing(err):
		return fmt.Errorf("git cannot read %s: %w", ref, err)
	}
	return nil
}
