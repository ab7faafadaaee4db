package filehold_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/filehold"
	"github.com/holdfast-io/holdfast/internal/core"
)

// newerProgram is a program of the next version.
func newerProgram(t *testing.T, dir string) *process {
	return spawn(t, "servant", dir, fmt.Sprint("FILEHOLD_VERSION=", filehold.Version+1))
}

// refusesNewer checks the error of a directory that is of the next version.
func refusesNewer(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("is of version %d", filehold.Version+1)) ||
		!strings.Contains(err.Error(), "update it") {
		t.Errorf("%s: %v", what, err)
	}
}

// A directory of before there were versions is taken over as it is, and keeps what
// it has.
func TestVersion_Unmarked(t *testing.T) {
	dir := t.TempDir()
	p := spawn(t, "servant", dir)
	token := number(t, p.do("lock m"))
	p.do("count c")
	_ = p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := filehold.Unmark(dir); err != nil {
		t.Fatal(err)
	}
	s := space(t, dir)
	if n, err := s.Counter("c").Add(deadline(t), 1); err != nil || n != 2 {
		t.Errorf("the count is %d, %v", n, err)
	}
	if next := take(t, s, "m"); uint64(next) <= token {
		t.Errorf("after the token %d came %d", token, next)
	}
}

// Two versions side by side: the newer one goes on with what is there; the older
// one, which runs, is told so by its next change and keeps what it holds until it
// gives it back; and it cannot be opened any more. Nothing is changed by it.
func TestVersion_SideBySide(t *testing.T) {
	dir := t.TempDir()
	old, err := filehold.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := old.Mutex("m").Acquire(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Counter("c").Add(deadline(t), 1); err != nil {
		t.Fatal(err)
	}
	p := newerProgram(t, dir)
	if n := p.do("count c"); n != "2" {
		t.Errorf("the newer program counts to %s", n)
	}
	_, err = old.Counter("c").Add(deadline(t), 1)
	refusesNewer(t, "a change by the older one", err)
	refusesNewer(t, "a sign of life", old.Ping(deadline(t)))
	if answer := p.do("await m"); answer != "waits" {
		t.Errorf("beside the older one's hold: %s", answer)
	}
	if err := h.Release(); err != nil {
		t.Errorf("the older one's release: %v", err)
	}
	if token := number(t, p.line()); token <= uint64(h.Token()) {
		t.Errorf("after the token %d came %d", h.Token(), token)
	}
	before, err := os.ReadFile(filepath.Join(dir, ".holdfast", "log"))
	if err != nil {
		t.Fatal(err)
	}
	q := spawn(t, "servant", dir)
	if answer := q.line(); !strings.Contains(answer, "update it") || !strings.Contains(answer, dir) {
		t.Errorf("the older one opens it: %s", answer)
	}
	if after, err := os.ReadFile(filepath.Join(dir, ".holdfast", "log")); err != nil || string(after) != string(before) {
		t.Errorf("the log was changed, %v", err)
	}
	refusesNewer(t, "the older one closes", old.Close()) // and is found dead
	if n := p.do("count c"); n != "3" {
		t.Errorf("the newer program counts to %s", n)
	}
}

// The version of a directory is that of the entries in its log, and grows with it.
func TestVersion_FollowsEntries(t *testing.T) {
	if core.EntryVersion != filehold.Version {
		t.Errorf("entries are of version %d, the directory of %d: raise it, and say in its table what is new", core.EntryVersion, filehold.Version)
	}
}
