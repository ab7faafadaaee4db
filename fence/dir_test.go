package fence_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
)

func nothing(context.Context) error { return nil }

// reopening makes a Dir look like the other gates. Every check opens the directory
// anew, as a restarted process does.
func reopening(t *testing.T, path string, strict bool) check {
	return func(resource string, token fence.Token, mode fence.Mode) error {
		return (&fence.Dir{Path: path, Strict: strict}).Check(t.Context(), resource, token, mode)
	}
}

func TestRulesOfDir(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) { script(t, reopening(t, t.TempDir(), false), r.words) })
	}
	for _, r := range strictRules {
		t.Run("strict "+r.name, func(t *testing.T) { script(t, reopening(t, t.TempDir(), true), r.words) })
	}
}

func TestDirAgreesWithItsTwin(t *testing.T) {
	for seed := range uint64(6) {
		strict := seed%2 == 1
		agree(t, seed, 60, reopening(t, t.TempDir(), strict), strict, true)
	}
}

// stateFile finds the one state file of a directory.
func stateFile(t *testing.T, path string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(path, "*"))
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(f string) bool { return filepath.Ext(f) != "" })
	if len(all) != 1 {
		t.Fatalf("state files: %v", all)
	}
	return all[0]
}

func TestADamagedStateFileIsNamedAndKept(t *testing.T) {
	const good = "holdfast fence 1\nresource \"r\"\nexclusive 20\nshared 0\nused\n"
	damage := map[string]struct {
		content func(good []byte) []byte
		reason  string
	}{
		"empty":        {func([]byte) []byte { return nil }, "empty"},
		"cut in half":  {func(b []byte) []byte { return b[:len(b)/2] }, "cut short"},
		"one byte off": {func(b []byte) []byte { return b[:len(b)-1] }, "cut short"},
		"flipped":      {func(b []byte) []byte { b[len(good)-10] ^= 1; return b }, "checksum"},
		"zeros":        {func(b []byte) []byte { return make([]byte, len(b)) }, "cut short"},
		"longer":       {func(b []byte) []byte { return append(b, b...) }, "checksum"},
		"huge":         {func(b []byte) []byte { return bytes.Repeat(b, 3000) }, "longer than"},
	}
	for name, d := range damage {
		t.Run(name, func(t *testing.T) {
			dir := &fence.Dir{Path: t.TempDir()}
			script(t, reopening(t, dir.Path, false), "x20")
			file := stateFile(t, dir.Path)
			content, err := os.ReadFile(file)
			if err != nil || !bytes.HasPrefix(content, []byte(good)) {
				t.Fatalf("%q, %v", content, err)
			}
			bad := d.content(content)
			if err := os.WriteFile(file, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			ran := false
			err = dir.Do(t.Context(), "r", 21, fence.Exclusive, func(context.Context) error { ran = true; return nil })
			wantError(t, err, nil, `"r"`, file, d.reason, "backup", "delete")
			if now, _ := os.ReadFile(file); ran || !bytes.Equal(now, bad) {
				t.Errorf("ran: %v, file: %q", ran, now)
			}
			if _, _, err := dir.Last("r"); err == nil {
				t.Error("Last made something up")
			}
			if err := dir.Forget("r"); err != nil {
				t.Fatal(err)
			}
			script(t, reopening(t, dir.Path, false), "x1")
		})
	}
}

// A file of another resource, put there by hand, is not believed.
func TestAStateFileOfAnotherResourceIsDamage(t *testing.T) {
	a, b := &fence.Dir{Path: t.TempDir()}, &fence.Dir{Path: t.TempDir()}
	if err := errors.Join(a.Check(t.Context(), "r", 20, fence.Exclusive), b.Check(t.Context(), "other", 5, fence.Exclusive)); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(stateFile(t, b.Path))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stateFile(t, a.Path), content, 0o600); err != nil {
		t.Fatal(err)
	}
	wantError(t, a.Check(t.Context(), "r", 21, fence.Exclusive), nil, `\"other\"`)
}

func TestALeftoverOfACrashIsOverwritten(t *testing.T) {
	dir := &fence.Dir{Path: t.TempDir()}
	script(t, reopening(t, dir.Path, false), "x20")
	if err := os.WriteFile(stateFile(t, dir.Path)+".tmp", []byte("half a sta"), 0o600); err != nil {
		t.Fatal(err)
	}
	script(t, reopening(t, dir.Path, false), "x19! x21 x20!")
}

func TestWhatCannotBeWrittenDoesNotRun(t *testing.T) {
	dir := &fence.Dir{Path: t.TempDir()}
	script(t, reopening(t, dir.Path, false), "x20")
	if err := os.Mkdir(stateFile(t, dir.Path)+".tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	ran := false
	err := dir.Do(t.Context(), "r", 21, fence.Exclusive, func(context.Context) error { ran = true; return nil })
	wantError(t, err, nil, ".tmp")
	if x, _, err := dir.Last("r"); ran || x != 20 || err != nil {
		t.Errorf("ran: %v, last %d, %v", ran, x, err)
	}
	// The same token writes nothing, and so still works.
	if err := dir.Do(t.Context(), "r", 20, fence.Exclusive, nothing); err != nil {
		t.Error(err)
	}
}

func TestAVanishedDirectoryIsNotMadeAnew(t *testing.T) {
	dir := &fence.Dir{Path: filepath.Join(t.TempDir(), "gate")}
	if err := dir.Check(t.Context(), "r", 20, fence.Exclusive); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir.Path); err != nil {
		t.Fatal(err)
	}
	err := dir.Check(t.Context(), "r", 19, fence.Exclusive)
	wantError(t, err, nil, dir.Path)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir.Path); err == nil {
		t.Error("the directory is back, and empty")
	}
}

func TestDirRefusesBadInput(t *testing.T) {
	dir := &fence.Dir{Path: filepath.Join(t.TempDir(), "gate")}
	for _, bad := range badPasses {
		wantError(t, dir.Check(t.Context(), bad.pass.Resource, bad.pass.Token, bad.pass.Mode), fs.ErrInvalid, bad.word)
	}
	if _, err := os.Stat(dir.Path); err == nil {
		t.Error("bad input made a directory")
	}
	wantError(t, new(fence.Dir).Check(t.Context(), "r", 1, fence.Exclusive), fs.ErrInvalid, "Dir.Path is empty")
	_, _, err := dir.Last("")
	wantError(t, err, fs.ErrInvalid)
	wantError(t, dir.Forget(""), fs.ErrInvalid)
	orphan := &fence.Dir{Path: filepath.Join(t.TempDir(), "no", "parent")}
	wantError(t, orphan.Check(t.Context(), "r", 1, fence.Exclusive), nil, orphan.Path)
}

func TestDirLast(t *testing.T) {
	dir := &fence.Dir{Path: t.TempDir()}
	if x, s, err := dir.Last("r"); x != 0 || s != 0 || err != nil {
		t.Errorf("%d, %d, %v", x, s, err)
	}
	script(t, reopening(t, dir.Path, false), "x20 s25 s22")
	if x, s, err := dir.Last("r"); x != 20 || s != 25 || err != nil {
		t.Errorf("%d, %d, %v", x, s, err)
	}
}

// inside runs an operation of gate until the test calls the function it returns.
func inside(t *testing.T, gate fence.Doer, token fence.Token, mode fence.Mode) (leave func()) {
	t.Helper()
	entered, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- gate.Do(t.Context(), "r", token, mode, func(context.Context) error {
			close(entered)
			<-end
			return nil
		})
	}()
	select {
	case <-entered:
	case err := <-done:
		t.Fatal(err)
	}
	return func() {
		close(end)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// blocked reports that an operation of gate is kept waiting.
func blocked(t *testing.T, gate fence.Doer, token fence.Token, mode fence.Mode) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	err := gate.Do(ctx, "r", token, mode, nothing)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return err != nil
}

// Two Dirs of one path are to the kernel what two processes are.
func TestDirsOfOnePathKeepEachOtherOut(t *testing.T) {
	path := t.TempDir()
	a, b := &fence.Dir{Path: path}, &fence.Dir{Path: path}
	leave := inside(t, a, 20, fence.Exclusive)
	if !blocked(t, b, 21, fence.Exclusive) || !blocked(t, b, 21, fence.Shared) || !blocked(t, a, 21, fence.Shared) {
		t.Error("somebody was let in beside a writer")
	}
	wantError(t, b.Do(t.Context(), "r", 19, fence.Exclusive, nothing), driver.ErrStale)
	wantError(t, b.Forget("r"), driver.ErrHeld, "in progress")
	leave()
	leave = inside(t, a, 22, fence.Shared)
	if err := b.Do(t.Context(), "r", 21, fence.Shared, nothing); err != nil {
		t.Errorf("readers are not together: %v", err)
	}
	if !blocked(t, b, 23, fence.Exclusive) {
		t.Error("a writer is with a reader")
	}
	leave()
	if x, s, err := b.Last("r"); x != 20 || s != 22 || err != nil {
		t.Errorf("last %d, %d, %v: a token counts that was not used", x, s, err)
	}
	if err := b.Do(t.Context(), "r", 23, fence.Exclusive, nothing); err != nil {
		t.Error(err)
	}
}

func TestForgetRemovesAllFiles(t *testing.T) {
	dir := &fence.Dir{Path: t.TempDir()}
	script(t, reopening(t, dir.Path, false), "x20 s21")
	if err := dir.Forget("r"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir.Path); len(left) != 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A lock on a file that Forget has unlinked keeps out nobody, and must not count.
func TestForgetAmongVisitors(t *testing.T) {
	path := t.TempDir()
	var wg sync.WaitGroup
	var alone atomic.Int32
	for range 3 {
		wg.Go(func() {
			dir := &fence.Dir{Path: path}
			for range 40 {
				if err := dir.Do(t.Context(), "r", 5, fence.Exclusive, func(context.Context) error {
					if alone.Add(1) != 1 {
						t.Error("two writers at once")
					}
					runtime.Gosched()
					alone.Add(-1)
					return nil
				}); err != nil {
					t.Error(err)
				}
				if err := dir.Forget("r"); err != nil && !errors.Is(err, driver.ErrHeld) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
