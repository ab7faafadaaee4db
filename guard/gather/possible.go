package gather

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
)

// Check refuses, as a [holdfast.ErrInvalid], what [guard.Condition.Check] does, and a condition with a part that its [Git], [Sessions], files or tracker, [GitHub] or
// [IssueFile], could never look for, also beside one in an Any that can pass: a wait for that part would have no end. Git takes the
// name of a branch for none, a session is neither one of tmux nor a process, a path is longer than any can be
// or begins with ~ or $, as for a shell, or a filter is none. Whether there is such a branch, session, file or issue is not asked, and what other sources
// can look for is not known.
func (g *Gatherer) Check(c *guard.Condition) error {
	if err := c.Check(); err != nil {
		return invalid{err}
	}
	for _, in := range c.RequiredInputs() {
		if !known(g.sources[in.Source]) {
			continue
		}
		if err := possible(in); err != nil {
			return fmt.Errorf("%w: %w", err, holdfast.ErrInvalid)
		}
	}
	return nil
}

// invalid is a refusal by package guard, which does not know the errors of Holdfast.
type invalid struct{ error }

func (e invalid) Is(target error) bool { return target == holdfast.ErrInvalid }

func (e invalid) Unwrap() error { return e.error }

// known: what the source can look for is known here.
func known(s Source) bool {
	switch s.(type) {
	case *Git, *Sessions, *files, *GitHub, *IssueFile:
		return true
	}
	return false
}

func possible(in guard.Input) (err error) {
	switch in.Source {
	case guard.SourceBranch:
		_, err = refOf(in.Name)
	case guard.SourceMerged:
		if _, err = refOf(in.Name); err == nil {
			_, err = refOf(in.Other)
		}
	case guard.SourceSession:
		err = possibleSession(in.Name)
	case guard.SourceFile:
		err = possiblePath(in.Name)
	case guard.SourceIssues:
		_, err = parseFilter(in.Name)
	}
	return err
}

func possibleSession(session string) error {
	kind, name, ok := strings.Cut(session, ":")
	switch {
	case ok && kind == "pid":
		_, _, _, err := parseProcess(name)
		return err
	case ok && kind == "pidfile" && name == "":
		return errors.New("pidfile: names no file")
	case ok && kind == "pidfile":
		return possiblePath(name)
	case ok && kind == "tmux":
		return possibleTmux(name)
	}
	return possibleTmux(session)
}

// possiblePath refuses what is longer than the systems take, to which it would be an error at every look, and what a shell
// would have made another path of: a file of that name is hardly meant, and without one a file_not_exists passes.
func possiblePath(path string) error {
	const most, mostOfPart = 4095, 255
	if strings.HasPrefix(path, "~") || strings.HasPrefix(path, "$") {
		return fmt.Errorf("the path %q is for a shell, and none reads it: write the whole path, or ./ in front of a file of that name", path)
	}
	if len(path) > most {
		return fmt.Errorf("the path has %d bytes; at most %d are possible", len(path), most)
	}
	for part := range strings.SplitSeq(path, "/") {
		if len(part) > mostOfPart {
			return fmt.Errorf("a part of the path has %d bytes; at most %d are possible", len(part), mostOfPart)
		}
	}
	return nil
}

// possibleTmux refuses what tmux takes for a pattern, a window or, after a $, the number of a session.
func possibleTmux(name string) error {
	if name == "" || strings.HasPrefix(name, "$") || strings.ContainsAny(name, ":.*?[") {
		return fmt.Errorf("%q is no name of a tmux session", name)
	}
	return nil
}

// parseProcess reads pid, or pid@start.
func parseProcess(name string) (pid int, start uint64, dated bool, err error) {
	number, tick, dated := strings.Cut(name, "@")
	n, err := strconv.ParseUint(number, 10, 31)
	if err == nil && dated {
		start, err = strconv.ParseUint(tick, 10, 64)
	}
	if err != nil || n == 0 {
		return 0, 0, dated, fmt.Errorf("%q is no pid, or pid@start", name)
	}
	return int(n), start, dated, nil
}
