package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/watch"
	"github.com/holdfast-io/holdfast/server"
)

func lock() core.Command {
	return core.Command{Op: core.OpAcquire, Flags: core.Try, Wants: []core.Want{{Name: "m", Kind: core.Mutex}}}
}

// backup saves a running node into a file.
func backup(t *testing.T, s *server.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Backup(within(t), f), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// A restored node has the state of the backup, and nothing of those who held
// something; a client of before learns at once that it has lost.
func TestBackupAndRestore(t *testing.T) {
	s := start(t, server.Config{Dir: t.TempDir()})
	c := newClient(t, 1, func() []*server.Server { return []*server.Server{s} })
	held := c.do(lock())
	for range 10 {
		c.do(add())
	}
	draw := core.Command{Op: core.OpReserve, Name: "ids", A: 100, B: 1}
	c.do(draw)
	path := backup(t, s)
	drawn, last := c.do(draw), c.do(add())
	s.Close()

	dir := filepath.Join(t.TempDir(), "new")
	began, err := server.Restore(path, server.Anew{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if began.ClusterID < 2 || began.From.ClusterID != 1 || began.From.Revision >= last.Revision {
		t.Errorf("it began as %+v", began)
	}
	if _, err := server.New(server.Config{Dir: dir, ClusterID: 1}); !errors.Is(err, storage.ErrForeign) {
		t.Errorf("the new directory opens as the old cluster's: %v", err)
	}
	s = start(t, server.Config{Dir: dir})
	other := newClient(t, 2, one(s))
	if r := other.do(add()); r.Number != 11 {
		t.Errorf("the counter went on at %d, want 11", r.Number)
	}
	if again, past := other.do(draw), other.do(draw); again.Number != drawn.Number || past.Number != drawn.Number+100 {
		t.Errorf("of a sequence it gives %d, and then %d; drawn after the backup was %d", again.Number, past.Number, drawn.Number)
	}
	if r := other.do(lock()); r.Code != core.CodeOK || r.Token <= held.Token || r.Token <= uint64(time.Now().Add(-time.Hour).Unix())<<20 {
		t.Errorf("the lock: %+v after token %d", r, held.Token)
	}
	if _, _, err := s.Watch(watch.Filter{}, last.Revision); !isCompacted(err) {
		t.Errorf("a watch from before the restore: %v", err)
	}
	c.hangUp()
	c.dial()
	for c.s.Alive() {
		c.act(c.s.Flush(c.now()))
		c.receive(<-c.in)
	}
	if d, _ := c.s.Deadline(); c.now() >= d {
		t.Error("the old session ended only by its deadline")
	}
}

// Promise: "of two clusters that begin from one state the one that starts later has the
// greater tokens": the one that was restored first is kept as a spare, and started last.
func TestRestoredSpare(t *testing.T) {
	s := start(t, server.Config{Dir: t.TempDir()})
	newClient(t, 1, one(s)).do(add())
	path, dir, last := backup(t, s), t.TempDir(), uint64(0)
	s.Close()
	for _, name := range []string{"spare", "used"} {
		if _, err := server.Restore(path, server.Anew{Dir: filepath.Join(dir, name)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"used", "spare"} {
		s := start(t, server.Config{Dir: filepath.Join(dir, name)})
		r := newClient(t, 2, one(s)).do(lock())
		if r.Code != core.CodeOK || r.Token <= last {
			t.Errorf("%s gives %+v after token %d", name, r, last)
		}
		last = r.Token
		s.Close()
	}
}

func isCompacted(err error) bool {
	_, ok := errors.AsType[*watch.CompactedError](err)
	return ok
}

// A backup has everything that was answered before it was asked for, also while
// others write, and also right after another.
func TestBackupIsComplete(t *testing.T) {
	s := start(t, server.Config{Dir: t.TempDir(), SnapshotEntries: 4})
	c := newClient(t, 1, one(s))
	for want := uint64(1); want <= 9; want++ {
		c.do(add())
		dir := filepath.Join(t.TempDir(), "new")
		if _, err := server.Restore(backup(t, s), server.Anew{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		r := start(t, server.Config{Dir: dir})
		if got := newClient(t, 2, one(r)).do(add()); got.Number != want+1 {
			t.Errorf("the backup has %d, want %d", got.Number-1, want)
		}
		r.Close()
	}
}

func TestBackupFails(t *testing.T) {
	s := start(t, server.Config{Dir: t.TempDir()})
	broken := errors.New("broken")
	r, w := io.Pipe()
	r.CloseWithError(broken)
	if err := s.Backup(within(t), w); !errors.Is(err, broken) {
		t.Errorf("to a writer that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Backup(ctx, io.Discard); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	s.Close()
	if err := s.Backup(within(t), io.Discard); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("of a stopped node: %v", err)
	}
}

// Promise: "a non-empty target directory, a running node: clear errors, nothing
// overwritten".
func TestAnewRefuses(t *testing.T) {
	cfg := server.Config{Dir: t.TempDir()}
	s := start(t, cfg)
	path := backup(t, s)
	for name, err := range map[string]error{
		"no directory":      errOf(server.Restore(path, server.Anew{})),
		"negative wait":     errOf(server.Restore(path, server.Anew{Dir: t.TempDir(), Wait: -1})),
		"a running node":    errOf(server.Restore(path, server.Anew{Dir: cfg.Dir})),
		"no such backup":    errOf(server.Restore(path+"x", server.Anew{Dir: t.TempDir()})),
		"loss of a running": errOf(server.AcceptLoss(cfg.Dir, server.Anew{Dir: t.TempDir()})),
		"force a running":   errOf(server.ForceNewCluster(cfg.Dir, server.Anew{Dir: t.TempDir()})),
		"nothing there":     errOf(server.AcceptLoss(t.TempDir(), server.Anew{Dir: t.TempDir()})),
	} {
		if full, ok := errors.AsType[*driver.Error](err); !ok || full.Op == "" || full.Outcome != driver.NotDone {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := newClient(t, 1, one(s))
	if r := c.do(add()); r.Number != 1 {
		t.Errorf("afterwards the node counts to %d", r.Number)
	}
}

func errOf(_ server.Began, err error) error { return err }

// A damaged node alone says so and names both ways out; accepting the loss gives
// what was readable, in a directory of its own.
func TestAcceptLoss(t *testing.T) {
	cfg := server.Config{Dir: t.TempDir()}
	s := start(t, cfg)
	c := newClient(t, 1, one(s))
	for range 10 {
		c.do(add())
	}
	s.Close()
	log := filepath.Join(cfg.Dir, "log-0000000000000001")
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	b[len(bytes.TrimRight(b, "\x00"))*3/4] ^= 1
	if err := os.WriteFile(log, b, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = server.New(cfg)
	if !errors.Is(err, storage.ErrDamaged) || !contains(err, log, "restore a backup", "accept the loss") {
		t.Errorf("a damaged node: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	began, err := server.AcceptLoss(cfg.Dir, server.Anew{Dir: dir, Wait: time.Hour})
	if err != nil || len(began.From.Findings) == 0 {
		t.Fatalf("%+v, %v", began, err)
	}
	s = start(t, server.Config{Dir: dir})
	c = newClient(t, 2, one(s))
	if r := c.do(add()); r.Number < 3 || r.Number > 11 {
		t.Errorf("the counter went on at %d", r.Number)
	}
	if r := c.do(lock()); r.Code != core.CodeUnavailable {
		t.Errorf("during the wait a lock got code %d", r.Code)
	}
	if now, _ := os.ReadFile(log); !bytes.Equal(now, b) {
		t.Error("the damaged file was changed")
	}
}

// Files that were moved aside have their names back in a directory of their own: what can be read of them is there.
func TestRestore_NamesGivenBack(t *testing.T) {
	cfg := server.Config{Dir: t.TempDir()}
	s := start(t, cfg)
	c := newClient(t, 1, one(s))
	for range 20 {
		c.do(add())
	}
	s.Close()
	damage(t, cfg.Dir)
	prefix, err := storage.MoveAside(storage.OS{}, cfg.Dir)
	if err != nil || prefix != "damaged-1-" {
		t.Fatal(prefix, err)
	}
	files, err := filepath.Glob(filepath.Join(cfg.Dir, prefix+"*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	own, dir := t.TempDir(), filepath.Join(t.TempDir(), "new")
	for _, file := range files {
		if err := os.Rename(file, filepath.Join(own, strings.TrimPrefix(filepath.Base(file), prefix))); err != nil {
			t.Fatal(err)
		}
	}
	began, err := server.AcceptLoss(own, server.Anew{Dir: dir})
	if err != nil || len(began.From.Findings) == 0 {
		t.Fatalf("%+v, %v", began, err)
	}
	if r := newClient(t, 2, one(start(t, server.Config{Dir: dir}))).do(add()); r.Number < 2 || r.Number > 20 {
		t.Errorf("the counter goes on at %d", r.Number)
	}
}

// Promise: "Should it be cut off or fail while it writes, DIR is no node's yet: a node that is started there is refused,
// whether it runs alone or knows a group, and the command can be given again."
func TestRestoreCutOffIsRefused(t *testing.T) {
	s := start(t, server.Config{Dir: t.TempDir()})
	newClient(t, 1, one(s)).do(add())
	path := backup(t, s)
	s.Close()
	group := founderConfigs(t, 3)[1]
	joining, keeping := group, group
	joining.ID, joining.Join, keeping.NoReplace = 4, true, true
	for what, cfg := range map[string]server.Config{"alone": {}, "founding": group, "joining": joining, "not replaced": keeping} {
		cfg.Dir = filepath.Join(t.TempDir(), "new")
		if _, err := server.Restore(path, server.Anew{Dir: cfg.Dir}); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(cfg.Dir, "identity"), filepath.Join(cfg.Dir, "unfinished")); err != nil {
			t.Fatal(err)
		}
		s, err := server.New(cfg)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, storage.ErrUnfinished) || !contains(err, "give the command again", "nothing was changed") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := server.Restore(path, server.Anew{Dir: cfg.Dir}); err != nil {
			t.Errorf("%s, the same command: %v", what, err)
		}
	}
}

// A directory without a readable identity gives its newest snapshot, as a backup, and every
// other way out says so.
func TestRestore_WithoutIdentity(t *testing.T) {
	cfg := server.Config{Dir: t.TempDir()}
	s := start(t, cfg)
	newClient(t, 1, one(s)).do(add())
	if err := s.Backup(within(t), io.Discard); err != nil { // makes a snapshot
		t.Fatal(err)
	}
	s.Close()
	for what, lose := range map[string]func(file string){"flipped": flipped(t), "gone": func(file string) { _ = os.Remove(file) }} {
		old := filepath.Join(t.TempDir(), "old")
		if err := os.CopyFS(old, os.DirFS(cfg.Dir)); err != nil {
			t.Fatal(err)
		}
		lose(filepath.Join(old, "identity"))
		anew := server.Anew{Dir: filepath.Join(t.TempDir(), "new")}
		at := anew
		at.Until = 1
		for _, err := range []error{errOf(server.AcceptLoss(old, anew)), errOf(server.ForceNewCluster(old, anew)), errOf(server.Restore(old, at))} {
			if !errors.Is(err, storage.ErrDamaged) || !contains(err, filepath.Join(old, "snap-"), "--data NEW") || contains(err, "accept the loss or") {
				t.Errorf("%s: %v", what, err)
			}
		}
		snaps, err := filepath.Glob(filepath.Join(old, "snap-*"))
		if err != nil || len(snaps) == 0 {
			t.Fatal(snaps, err)
		}
		if _, err := server.Restore(snaps[len(snaps)-1], anew); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if r := newClient(t, 2, one(start(t, server.Config{Dir: anew.Dir}))).do(add()); r.Number != 2 {
			t.Errorf("%s: the counter goes on at %d, want 2", what, r.Number)
		}
	}
}

// A directory of which the log begins behind every snapshot has nothing that can be read: to accept the
// loss says so, and not to accept the loss.
func TestAcceptLoss_NothingLeft(t *testing.T) {
	cfg := server.Config{Dir: t.TempDir()}
	s := start(t, cfg)
	newClient(t, 1, one(s)).do(add())
	s.Close()
	snaps, err := filepath.Glob(filepath.Join(cfg.Dir, "snap-*"))
	if err != nil || len(snaps) == 0 {
		t.Fatal(snaps, err)
	}
	for _, file := range snaps {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	anew := server.Anew{Dir: filepath.Join(t.TempDir(), "new")}
	if _, err := server.AcceptLoss(cfg.Dir, anew); !errors.Is(err, storage.ErrDamaged) || !contains(err, "nothing of it can be read: restore a backup") {
		t.Errorf("it says %v", err)
	}
}

// flipped turns a bit of a file around.
func flipped(t *testing.T) func(file string) {
	return func(file string) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The last of three goes on alone, and a new node can join it.
func TestForceNewCluster(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	for range 30 {
		c.do(add())
	}
	c.hangUp()
	lead := g.leader()
	for _, n := range g.nodes {
		n.Close()
	}
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := server.ForceNewCluster(g.cfgs[lead].Dir, server.Anew{Dir: dir, ID: 7}); err != nil {
		t.Fatal(err)
	}
	s := start(t, server.Config{Dir: dir})
	if r := newClient(t, 2, one(s)).do(add()); r.Number != 31 {
		t.Errorf("the counter went on at %d, want 31", r.Number)
	}
	if st, err := s.Status(within(t)); err != nil || st.ID != 7 {
		t.Errorf("node %d, %v", st.ID, err)
	}
	if _, err := server.ForceNewCluster(dir+"x", server.Anew{Dir: t.TempDir()}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("from nowhere: %v", err)
	}
}

// Promise: "A new store too starts at unix seconds · 2²⁰", also one of a group.
func TestNewStoreBeginsAtTheClock(t *testing.T) {
	least := uint64(time.Now().Unix()) << 20
	alone := start(t, server.Config{Dir: t.TempDir()})
	for name, nodes := range map[string]func() []*server.Server{"alone": one(alone), "three": newGroup(t, 3).up} {
		if r := newClient(t, 1, nodes).do(lock()); r.Token < least || r.Token >= 1<<53 {
			t.Errorf("%s: token %d, want at least %d", name, r.Token, least)
		}
	}
}

// A server alone that is wiped and started again at once repeats no token. A watch of a new one
// can begin from revision 1, also after a restart; one from now on begins after its beginning.
func TestNewStoreAgainWithinASecond(t *testing.T) {
	last := uint64(0)
	for range 3 {
		dir := t.TempDir()
		s := start(t, server.Config{Dir: dir})
		r := newClient(t, 1, one(s)).do(lock())
		if r.Token <= last {
			t.Errorf("token %d after %d", r.Token, last)
		}
		last = r.Token
		s.Close()
		s = start(t, server.Config{Dir: dir})
		if _, first, err := s.Watch(watch.Filter{}, 1); err != nil || first != 1 {
			t.Errorf("a watch from revision 1 begins at %d: %v", first, err)
		}
		s.Close()
	}
	if _, first, err := start(t, server.Config{Dir: t.TempDir()}).Watch(watch.Filter{}, 0); err != nil || first <= last {
		t.Errorf("a watch from now on begins at %d: %v", first, err)
	}
}
