package filehold_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/drivertest"
)

// users are accounts that have no more in common than a group.
const (
	ann, bob, eve = 61001, 61002, 61003
	staff, other  = 62000, 62001
)

// copied is the test program where everybody may run it.
func copied(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(public(t), "program")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// as has a process run by a user, whose umask takes everything from others. It
// takes root.
func as(program string, uid, gid uint32, env ...string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Path, cmd.Dir = program, "/"
		cmd.Env = append([]string{"FILEHOLD_UMASK=077"}, append(cmd.Env, env...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	}
}

// common is a place in which every user can make directories.
func common(t *testing.T) string {
	t.Helper()
	dir := public(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Users of a group share a directory whose maker has opened it with a mode, with
// every promise of the suite, although the umask of each would keep the others out.
func TestConformance_OtherUsers(t *testing.T) {
	program, dir := copied(t), filepath.Join(common(t), "space")
	o := &others{dir: dir, opened: map[context.Context]int{}}
	o.farms = append(o.farms, startFarm(t, as(program, ann, staff, "FILEHOLD_MODE=0660")))
	o.farms = append(o.farms, startFarm(t, as(program, bob, staff)))
	o.farms = append(o.farms, startFarm(t, as(program, eve, staff, "FILEHOLD_MODE=0660")))
	drivertest.Run(t, drivertest.Harness{Open: o.open, Driver: o.driver})
}

// servantOf starts a servant for a user.
func servantOf(t *testing.T, program, dir string, uid, gid uint32, env ...string) *process {
	t.Helper()
	return spawnBy(t, "servant", dir, as(program, uid, gid, env...))
}

// Whoever is of the group can take over from a user that was killed, replace the
// log, and sweep; any other is told what to do.
func TestMode_Group(t *testing.T) {
	program, dir := copied(t), filepath.Join(common(t), "space")
	a := servantOf(t, program, dir, ann, staff, "FILEHOLD_MODE=0660")
	a.do("lock m")
	a.do("permit s")
	b := servantOf(t, program, dir, bob, staff, "FILEHOLD_COMPACT=1")
	if answer := b.do("await m"); answer != "waits" {
		t.Fatalf("beside the holder: %s", answer)
	}
	a.kill()
	b.line()
	b.do("permit s")
	for range 200 {
		b.do("count c") // and replaces the log
	}
	c := servantOf(t, program, dir, ann, staff, "FILEHOLD_COMPACT=1")
	if n := c.do("count c"); n != "201" {
		t.Errorf("after 200 counts of another user: %s", n)
	}
	stranger := servantOf(t, program, dir, eve, other)
	if text := stranger.line(); !strings.Contains(text, "permission denied") || !strings.Contains(text, "?mode=0660") {
		t.Errorf("a stranger is told %q", text)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		sys := st.Sys().(*syscall.Stat_t)
		want := fs.FileMode(0o660)
		if d.IsDir() {
			want = 0o770
		}
		if st.Mode().Perm() != want || sys.Gid != staff || d.IsDir() != (st.Mode()&fs.ModeSetgid != 0) {
			t.Errorf("%s is %s of group %d", path, st.Mode(), sys.Gid)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A directory that an administrator has made for a group serves too, also one that
// only its owner could use before, if its owner opens it first.
func TestMode_MadeDirectory(t *testing.T) {
	program := copied(t)
	made := filepath.Join(common(t), "made")
	if err := errors.Join(os.Mkdir(made, 0), os.Chown(made, 0, staff), os.Chmod(made, 0o770|fs.ModeSetgid)); err != nil {
		t.Fatal(err)
	}
	owned := filepath.Join(common(t), "owned")
	if err := errors.Join(os.Mkdir(owned, 0o700), os.Chown(owned, ann, staff)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{made, owned} {
		a := servantOf(t, program, dir, ann, staff, "FILEHOLD_MODE=0660")
		a.do("lock m")
		b := servantOf(t, program, dir, bob, staff)
		if answer := b.do("await m"); answer != "waits" {
			t.Errorf("%s: beside the holder: %s", dir, answer)
		}
		a.do("release m")
		b.line()
	}
}

// Many users start at once on a directory that does not exist yet.
func TestMode_StartTogether(t *testing.T) {
	program, base := copied(t), common(t)
	for round := range 5 {
		dir := filepath.Join(base, fmt.Sprint("space", round))
		var ps []*process
		for i := range 6 {
			ps = append(ps, servantOf(t, program, dir, ann+uint32(i)%3, staff, "FILEHOLD_MODE=0660"))
		}
		for _, p := range ps {
			p.send("count c")
		}
		for _, p := range ps {
			number(t, p.line())
		}
	}
}

// A mode is one of three, and that of the directory.
func TestMode_Bad(t *testing.T) {
	dir := t.TempDir()
	for _, query := range []string{"mode=0640", "mode=660", "mode=rw", "mode=0777", "mode=0660&x=1"} {
		if s, err := holdfast.Open(t.Context(), "file://"+dir+"?"+query); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v, %v", query, s, err)
		}
	}
	for _, closed := range []bool{false, true} {
		dir := filepath.Join(dir, fmt.Sprint(closed))
		s, err := holdfast.Open(t.Context(), "file://"+dir+"?mode=0600")
		if err != nil {
			t.Fatal(err)
		}
		if closed {
			_ = s.Close()
		}
		if _, err := holdfast.Open(t.Context(), "file://"+dir+"?mode=0660"); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "0600") {
			t.Errorf("another mode than it has: %v", err)
		}
		again, err := holdfast.Open(t.Context(), "file://"+dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(again.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	}
}
