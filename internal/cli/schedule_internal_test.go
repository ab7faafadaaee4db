package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/server"
)

// saving is a node that saves the number of its call, of which one fails.
type saving struct {
	n, fails int
	id, dir  uint64
}

func (s *saving) ID() uint64 { return s.id }

func (s *saving) Directory() uint64 { return s.dir }

func (s *saving) Backup(_ context.Context, w io.Writer) error {
	s.n++
	_, err := fmt.Fprint(w, s.n)
	if s.n == s.fails {
		err = errors.Join(err, errors.New("the disk is full"))
	}
	return err
}

// contents are those of the files in a directory, in the order of their names.
func contents(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b))
	}
	return all
}

// A schedule saves again and again and keeps the newest; one that fails leaves nothing and
// is told, and the next comes all the same.
func TestSchedule(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "zzz other"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &schedule{dir: dir, every: time.Hour, keep: 3}
		node, told := &saving{fails: 5}, 0
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.run(ctx, node, func(error) { told++ })
		}()
		for _, want := range [][]string{{"1"}, {"1", "2"}, {"1", "2", "3"}, {"2", "3", "4"}, {"2", "3", "4"}, {"3", "4", "6"}} {
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := contents(t, dir); !slices.Equal(got, append(want, "other")) {
				t.Errorf("after backup %d there are %q, want %q", node.n, got, want)
			}
		}
		stop()
		if <-ended; told != 1 {
			t.Errorf("%d failures were told, want 1", told)
		}
	})
}

// waiting is a node that has nothing to save before it is let into a group.
type waiting struct {
	saving
	since, until time.Duration
}

func (w *waiting) Backup(ctx context.Context, wr io.Writer) error {
	if w.since += time.Minute; w.since < w.until {
		return fmt.Errorf("not yet: %w", driver.ErrUnavailable)
	}
	return w.saving.Backup(ctx, wr)
}

// A node that has no state yet is saved soon after it has.
func TestSchedule_NoStateYet(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &schedule{dir: dir, every: 24 * time.Hour, keep: 3}
		ctx, stop := context.WithCancel(t.Context())
		go s.run(ctx, &waiting{until: 10 * time.Minute}, func(error) {})
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		if got := contents(t, dir); !slices.Equal(got, []string{"1"}) {
			t.Errorf("after a quarter of an hour there are %q", got)
		}
		stop()
		synctest.Wait()
	})
}

// endless is a node with a state that has no end.
type endless struct {
	saving
	begun func()
}

func (e *endless) Backup(_ context.Context, w io.Writer) error {
	for n := 0; ; n++ {
		if _, err := w.Write([]byte("x")); err != nil {
			return err
		}
		if n == 3 {
			e.begun()
		}
	}
}

// A backup ends with the node, in the middle of its copy, and leaves nothing.
func TestSchedule_Stopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := &schedule{dir: t.TempDir(), every: time.Hour, keep: 3}
	if err := s.once(ctx, &endless{begun: stop}, time.Now()); !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	if got := contents(t, s.dir); len(got) != 0 {
		t.Errorf("it leaves %q", got)
	}
	synctest.Test(t, func(t *testing.T) {
		var hung sync.WaitGroup
		hung.Add(1)
		begin := time.Now()
		if atMost(lastBackup, &hung); time.Since(begin) != lastBackup {
			t.Errorf("a backup that hangs is waited for for %s", time.Since(begin))
		}
		hung.Done()
	})
}

// Nodes that save into one directory leave each other's backups alone, whole or not; the
// newest stays also if the clock was set back; what a killed node left behind goes.
func TestSchedule_SharedDirectory(t *testing.T) {
	dir := t.TempDir()
	one, twelve := &saving{id: 1}, &saving{id: 12, n: 100}
	for _, name := range []string{"." + backupPrefix(one) + "killed", ".holdfast-2-busy"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &schedule{dir: dir, every: time.Hour, keep: 2}
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for _, at := range []time.Duration{0, time.Hour, -24 * time.Hour, -24 * time.Hour} {
		for _, n := range []*saving{one, twelve} {
			if err := s.once(t.Context(), n, now.Add(at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := contents(t, dir), []string{".holdfast-2-busy", "3", "4", "103", "104"}; !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
}

// A node removes only what it has saved itself: neither the backups of another cluster, whole or
// not, be it the one that was in its own directory before that was wiped, nor a copy that
// somebody has put beside its own, nor those of an earlier version.
func TestSchedule_ForeignFiles(t *testing.T) {
	dir, backups := filepath.Join(t.TempDir(), "data"), t.TempDir()
	s := &schedule{dir: backups, every: time.Hour, keep: 1}
	at := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	var before backuper = &saving{id: 1, dir: 7}
	foreign := []string{"holdfast-1-20260401T000000.000Z.snap", "." + backupPrefix(before) + "busy"}
	for range 2 { // a cluster, and one in the place of the first
		started, err := server.New(server.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		st, err := started.Status(t.Context())
		if err != nil || st.Dir == 0 {
			t.Fatalf("the directory is %x: %v", st.Dir, err)
		}
		node := saver{started, st.Dir}
		foreign = append(foreign, backupPrefix(node)+"kept.snap")
		for _, name := range foreign {
			if err := os.WriteFile(filepath.Join(backups, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.first(node, at); got != time.Minute {
			t.Errorf("with backups of others only the first comes after %s", got)
		}
		for range 3 {
			if err := s.once(t.Context(), node, at); err != nil {
				t.Fatal(err)
			}
		}
		own, err := s.saved(backupPrefix(node))
		if err != nil || len(own) != 1 {
			t.Errorf("of three backups there are %q: %v", own, err)
		}
		foreign = append(foreign, own...)
		if err := errors.Join(node.Close(), os.RemoveAll(dir)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range foreign {
		if _, err := os.Stat(filepath.Join(backups, name)); err != nil {
			t.Error(err)
		}
	}
}

// A schedule that makes no sense is refused before anything starts.
func TestSchedule_BadInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range []schedule{{dir: t.TempDir(), every: 0, keep: 1}, {dir: t.TempDir(), every: time.Hour}, {dir: file + "/below", every: time.Hour, keep: 1}} {
		if err := s.check(t.TempDir()); err == nil {
			t.Errorf("%+v was taken", s)
		}
	}
	if err := (&schedule{}).check(t.TempDir()); err != nil {
		t.Error(err)
	}
}

// Sizes are read and written alike.
func TestSize(t *testing.T) {
	for text, want := range map[string]size{"0": 0, "512": 512, "64MiB": 64 << 20, "1GiB": 1 << 30, "3KiB": 3 << 10, "2TiB": 2 << 40} {
		var s size
		if err := s.Set(text); err != nil || s != want || s.String() != text {
			t.Errorf("%s is %d, written %s: %v", text, int64(s), s, err)
		}
	}
	for _, text := range []string{"", "x", "-1", "1.5GiB", "GiB", "1GB", "9999999999TiB", "64 MiB"} {
		if err := new(size).Set(text); err == nil {
			t.Errorf("%q is a size", text)
		}
	}
}

// A node that is started more often than it is saved is saved all the same, also for the
// first time, and after the clock was ahead.
func TestSchedule_First(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]time.Duration{0: time.Hour, 20 * time.Minute: 40 * time.Minute, 5 * time.Hour: time.Second, -time.Hour: time.Minute} {
		s := &schedule{dir: t.TempDir(), every: time.Hour, keep: 3}
		node := &saving{id: 3}
		if got := s.first(node, now); got != time.Minute {
			t.Errorf("without a backup the first comes after %s", got)
		}
		name := backupPrefix(node) + now.Add(-age).Format(backupTime) + backupSuffix
		if err := os.WriteFile(filepath.Join(s.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := s.first(node, now); got != want {
			t.Errorf("after a backup of %s ago the first comes after %s, want %s", age, got, want)
		}
	}
}

// Backups are not saved into the directory of the node's state, by whatever name, and neither directory has
// to be there; into one beside it they are.
func TestSchedule_NotInTheState(t *testing.T) {
	base := t.TempDir()
	data, link, in := filepath.Join(base, "data"), filepath.Join(base, "link"), filepath.Join(base, "in")
	check := func(dir, of string) error { return (&schedule{dir: dir, every: time.Hour, keep: 1}).check(of) }
	refused := func(dir, of string) {
		t.Helper()
		if err := check(dir, of); err == nil {
			t.Errorf("backups of %s go into %s", of, dir)
		}
	}
	refused(filepath.Join(data, "backups"), data)
	if _, err := os.Stat(data); err == nil {
		t.Error("a refusal has made the directory of the state")
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(data, "deep"), 0o700), os.Symlink(data, link), os.Symlink(filepath.Join(data, "deep"), in)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{data, data + "/", base + "/./data/../data/new/one", link, link + "/new", in, in + "/new"} {
		refused(dir, data)
		refused(dir, link)
	}
	t.Chdir(base)
	refused("data", data)
	refused(filepath.Join(data, "new"), "data")
	for _, dir := range []string{base, data + "-backups", filepath.Join(base, "backups", "data")} {
		if err := check(dir, data); err != nil {
			t.Errorf("backups of %s do not go into %s: %v", data, dir, err)
		}
	}
}
