package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/server"
)

// schedule says where a node saves backups of itself, how often, and how many stay.
type schedule struct {
	dir   string
	every time.Duration
	keep  int
}

// check refuses what makes no sense for a node with its state in data, before anything is started.
func (s *schedule) check(data string) error {
	switch {
	case s.dir == "":
		return nil
	case s.every < time.Second || s.keep < 1:
		return usagef("--backup-every is at least 1s, --backup-keep at least 1", "a backup every %s, of which %d stay, makes no sense", s.every, s.keep)
	}
	if inside(s.dir, data) {
		return usagef("name a directory elsewhere, best on another disk", "--backup-dir %s is in %s, the directory of the node's state: what loses or fills the one would lose or fill the other", s.dir, data)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return &failure{code: exitUsage, err: err, hint: "--backup-dir names a directory that can be written"}
	}
	return nil
}

// inside reports whether a directory is another, or lies in it, whatever the two are called. Neither
// has to exist.
func inside(dir, of string) bool {
	dir, of = resolved(dir), resolved(of)
	outer, err := os.Stat(of)
	for {
		here, missing := os.Stat(dir)
		if dir == of || err == nil && missing == nil && os.SameFile(here, outer) {
			return true
		}
		if filepath.Dir(dir) == dir {
			return false
		}
		dir = filepath.Dir(dir)
	}
}

// resolved is a path from the root on without symbolic links, as far as it exists.
func resolved(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	for rest := ""; ; {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Join(real, rest)
		}
		path, rest = filepath.Dir(path), filepath.Join(filepath.Base(path), rest)
	}
}

// backuper is a node that saves all that it knows.
type backuper interface {
	Backup(ctx context.Context, w io.Writer) error
	ID() uint64
	// Directory is that of its state: another cluster has another, also under the same number.
	Directory() uint64
}

// saver is a node with the directory of its state.
type saver struct {
	*server.Server
	dir uint64
}

func (s saver) Directory() uint64 { return s.dir }

// save saves backups of a node until ctx ends, or the node stops.
func (s *schedule) save(ctx context.Context, node *server.Server, told func(error)) {
	if st, err := node.Status(ctx); err == nil {
		s.run(ctx, saver{node, st.Dir}, told)
	}
}

// run saves backups until ctx ends, and tells what went wrong; the next one is tried all
// the same, and soon if the node has nothing to save yet.
func (s *schedule) run(ctx context.Context, node backuper, told func(error)) {
	if s.dir == "" {
		return
	}
	for wait := s.first(node, time.Now()); ; {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = s.every
		err := s.once(ctx, node, time.Now())
		if errors.Is(err, driver.ErrUnavailable) {
			wait = s.soon()
		}
		if err != nil && ctx.Err() == nil {
			told(fmt.Errorf("the backup into %s failed, and is tried again in %s: %w", s.dir, wait, err))
		}
	}
}

// soon is how long it is until a backup that should be there already.
func (s *schedule) soon() time.Duration { return min(s.every, time.Minute) }

// first is how long it is until the first backup: a node that is started more often than
// it is saved is saved all the same, also if there is none yet.
func (s *schedule) first(node backuper, now time.Time) time.Duration {
	prefix := backupPrefix(node)
	saved, _ := s.saved(prefix) // what is wrong is told with the first one
	if len(saved) == 0 {
		return s.soon()
	}
	at, err := savedAt(saved[len(saved)-1], prefix)
	if err != nil || at.After(now) { // the clock was ahead once
		return s.soon()
	}
	return max(s.every-now.Sub(at), time.Second)
}

// stateWait is how long a node may take to write its state, which is then copied.
const stateWait = 10 * time.Minute

var errNoState = fmt.Errorf("the node has not written its state within %s: see whether its disk is full", stateWait)

// Backups of a schedule are called holdfast-NODE-DIRECTORY-TIME.snap, and .holdfast-NODE-DIRECTORY-…
// before they are whole. The directory is that of the node's state, so that nodes of several
// clusters can save into one place, and a cluster that begins anew there, after a disk was
// wiped, does not remove the backups of the one before.
const (
	backupSuffix = ".snap"
	backupTime   = "20060102T150405.000Z"
)

func backupPrefix(node backuper) string {
	return fmt.Sprintf("holdfast-%d-%016x-", node.ID(), node.Directory())
}

// once saves one backup, which has its name only when it is whole, and removes the oldest,
// and what a node that was killed left behind.
func (s *schedule) once(ctx context.Context, node backuper, now time.Time) error {
	prefix := backupPrefix(node)
	unfinished, err := s.files("." + prefix)
	if err != nil {
		return err
	}
	for _, name := range unfinished {
		err = errors.Join(err, os.Remove(filepath.Join(s.dir, name)))
	}
	f, failed := os.CreateTemp(s.dir, "."+prefix+"*")
	if err = errors.Join(err, failed); failed != nil {
		return err
	}
	defer os.Remove(f.Name())
	written, cancel := context.WithTimeoutCause(ctx, stateWait, errNoState)
	defer cancel()
	err = node.Backup(written, &ending{ctx, f})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	saved, err := s.saved(prefix)
	if err != nil {
		return err
	}
	name := prefix + after(saved, prefix, now).Format(backupTime) + backupSuffix
	if err := os.Rename(f.Name(), filepath.Join(s.dir, name)); err != nil {
		return err
	}
	if err := (storage.OS{}).SyncDir(s.dir); err != nil {
		return err
	}
	return s.prune(append(saved, name))
}

// ending writes to w until ctx ends.
type ending struct {
	ctx context.Context
	w   io.Writer
}

func (e *ending) Write(p []byte) (int, error) {
	if e.ctx.Err() != nil {
		return 0, context.Cause(e.ctx)
	}
	return e.w.Write(p)
}

// lastBackup is how long a node that is stopped waits for a backup that is under way.
const lastBackup = 5 * time.Second

// atMost waits for wg, but not for longer than d: a directory that hangs, as one on another
// machine may, must not keep a node from being stopped.
func atMost(d time.Duration, wg *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wg.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(d):
	}
}

// savedAt is when a backup was saved, by its name.
func savedAt(name, prefix string) (time.Time, error) {
	return time.Parse(backupTime+backupSuffix, strings.TrimPrefix(name, prefix))
}

// after is now, or the moment after the newest of the backups if the clock was set back
// since: the newest has the last name.
func after(saved []string, prefix string, now time.Time) time.Time {
	if len(saved) == 0 {
		return now.UTC()
	}
	if at, err := savedAt(saved[len(saved)-1], prefix); err == nil && !now.Truncate(time.Millisecond).After(at) {
		return at.Add(time.Millisecond)
	}
	return now.UTC()
}

// files are those in the directory with names that begin so, in order.
func (s *schedule) files(prefix string) (names []string, err error) {
	files, err := os.ReadDir(s.dir)
	for _, f := range files {
		if strings.HasPrefix(f.Name(), prefix) {
			names = append(names, f.Name())
		}
	}
	return names, err
}

// saved are the backups of a node, in order. A file with another end than a time, such as a
// copy that somebody keeps, is none of them.
func (s *schedule) saved(prefix string) (names []string, err error) {
	files, err := s.files(prefix)
	for _, name := range files {
		if _, other := savedAt(name, prefix); other == nil {
			names = append(names, name)
		}
	}
	return names, err
}

// prune removes all but the newest of a node's backups; their names are in the order of
// time.
func (s *schedule) prune(saved []string) (err error) {
	for ; len(saved) > s.keep; saved = saved[1:] {
		err = errors.Join(err, os.Remove(filepath.Join(s.dir, saved[0])))
	}
	return err
}
