package filehold_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/filehold"
)

// sweep sweeps a directory once, as another Space of this process.
func sweep(t testing.TB, dir string, r driver.SweepRequest) int64 {
	t.Helper()
	d, err := filehold.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := d.Sweep(deadline(t), &r)
	if err := errors.Join(err, d.Close(deadline(t))); err != nil {
		t.Fatal(err)
	}
	return reply.Removed
}

// lockFiles are those in a directory.
func lockFiles(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.lock"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A sweep removes the lock files of thousands of idle names, and nothing else:
// neither what is held, here or elsewhere, nor a file that only looks like one.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	s, p := space(t, dir), spawn(t, "servant", dir)
	const names = 3000
	last := make([]holdfast.Token, names)
	for i := range names {
		last[i] = take(t, s, fmt.Sprintf("jobs/%d", i))
	}
	p.do("lock theirs")
	mine, err := s.Mutex("mine").Acquire(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(dir, filehold.FileName("full"))
	foreign := filepath.Join(dir, "notes.lock")
	for path, text := range map[string]string{full: "not empty", foreign: ""} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if n := sweep(t, dir, driver.SweepRequest{Prefix: "other/"}); n != 0 {
		t.Errorf("%d names with another prefix were swept", n)
	}
	if n := sweep(t, dir, driver.SweepRequest{}); n != names {
		t.Errorf("%d of %d names were swept", n, names)
	}
	if left := lockFiles(t, dir); len(left) != 4 {
		t.Errorf("%d files are left: %v", len(left), left)
	}
	if err := mine.Err(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"mine", "theirs"} {
		if _, err := s.Mutex(name).TryAcquire(deadline(t)); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("%s, which is held: %v", name, err)
		}
	}
	for i := 0; i < names; i += 100 {
		if token := take(t, s, fmt.Sprintf("jobs/%d", i)); token <= last[i] {
			t.Errorf("after the token %d came %d", last[i], token)
		}
	}
	if err := mine.Release(); err != nil {
		t.Error(err)
	}
}

// take takes a lock and gives it back.
func take(t testing.TB, s *holdfast.Space, name string) holdfast.Token {
	t.Helper()
	h, err := s.Mutex(name).Acquire(deadline(t))
	if err == nil {
		err = h.Release()
	}
	if err != nil {
		t.Fatal(err)
	}
	return h.Token()
}

// A name that was a lock can be something else after a sweep, and its tokens go
// on growing, also for a process that was there before and for one that comes
// later, and back again.
func TestSweep_AnotherKind(t *testing.T) {
	dir := t.TempDir()
	s, p := space(t, dir), spawn(t, "servant", dir)
	p.do("count c")
	var last holdfast.Token
	for range 500 {
		last = take(t, s, "m")
	}
	if n := sweep(t, dir, driver.SweepRequest{}); n != 1 {
		t.Fatalf("%d names were swept", n)
	}
	if token := number(t, p.do("lead m")); token <= uint64(last) {
		t.Errorf("after the lock's token %d the leader's is %d", last, token)
	}
	p.do("release m")
	q := spawn(t, "servant", dir)
	token := number(t, q.do("lead m"))
	q.do("release m")
	if next := take(t, s, "m"); uint64(next) <= token {
		t.Errorf("after the leader's token %d the lock's is %d", token, next)
	}
}

// Promise: nobody notices a sweep. A caller that tries an idle name gets it, although a
// sweep has its file locked for long: the disk is slow.
func TestSweep_TryIsNotRefused(t *testing.T) {
	dir := t.TempDir()
	s, p := space(t, dir), spawn(t, "sweeper", dir, "FILEHOLD_SLOW=1")
	last := take(t, s, "m")
	if answer := p.do("sweep"); answer != "locked" {
		t.Fatal(answer)
	}
	got := make(chan error, 1)
	go func() {
		h, err := s.Mutex("m").TryAcquire(deadline(t))
		if err == nil {
			err = h.Release()
		}
		if err == nil && h.Token() <= last {
			err = fmt.Errorf("after the token %d came %d", last, h.Token())
		}
		got <- err
	}()
	eventually(t, "the try does not wait for the sweep", func() bool { return waitedFor(t, filepath.Join(dir, ".holdfast", "control")) })
	if answer := p.do("go on"); answer != "1" {
		t.Errorf("%s files were swept", answer)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Many processes take and give back the same few names while others sweep them:
// one at a time is inside, no turn is lost, and tokens grow.
func TestSweep_ManyProcesses(t *testing.T) {
	dir, sheet := t.TempDir(), filepath.Join(t.TempDir(), "sheet")
	const workers, sweepers, names = 12, 3, 3
	var sweeping, working []*process
	for range sweepers {
		sweeping = append(sweeping, spawn(t, "sweeper", dir))
	}
	for range workers {
		working = append(working, spawn(t, "clerk", dir, "FILEHOLD_SHEET="+sheet, fmt.Sprint("FILEHOLD_NAMES=", names)))
	}
	for _, p := range sweeping { // until they have met each other often
		if answer := p.line(); answer != "enough" {
			t.Fatal(answer)
		}
	}
	turns := 0
	for _, p := range working {
		_ = p.in.Close()
		turns += int(number(t, p.line()))
	}
	for _, p := range sweeping {
		_ = p.in.Close()
		number(t, p.line())
	}
	total := 0
	for n := range names {
		var count, token int
		text, err := os.ReadFile(fmt.Sprint(sheet, n))
		if _, scan := fmt.Sscan(string(text), &count, &token); err != nil || scan != nil {
			t.Fatal(err, scan)
		}
		total += count
	}
	if total != turns {
		t.Errorf("%d of %d turns were noted", total, turns)
	}
}

func init() {
	roles["sweeper"] = sweeper
	roles["clerk"] = clerk
}

// enough is how much a sweeper removes before it says so.
const enough = 40

// sweeper sweeps until its input ends, and tells how much, and when it is enough. With FILEHOLD_SLOW it
// sweeps when it is told to, and stops before it removes a file.
func sweeper(dir string) error {
	slow, in := os.Getenv("FILEHOLD_SLOW") != "", bufio.NewScanner(os.Stdin)
	d, err := filehold.NewWith(dir, func(x *filehold.Seams) {
		if unlink := x.Unlink; slow {
			x.Unlink = func(dirfd int, file string) error {
				fmt.Println("locked")
				in.Scan()
				return unlink(dirfd, file)
			}
		}
	})
	if err != nil {
		return err
	}
	var over atomic.Bool
	if slow {
		in.Scan()
		over.Store(true)
	} else {
		go func() { in.Scan(); over.Store(true) }()
	}
	removed := int64(0)
	for again := true; again; again = !over.Load() {
		reply, err := d.Sweep(context.Background(), &driver.SweepRequest{})
		if err != nil {
			return err
		}
		if removed += reply.Removed; removed >= enough && removed-reply.Removed < enough {
			fmt.Println("enough")
		}
	}
	fmt.Println(removed)
	return d.Close(context.Background())
}

// clerk adds one to what a sheet says, with the sheet's lock, again and again until it is told to stop. It tells how often.
func clerk(dir string) error {
	names, err := strconv.Atoi(os.Getenv("FILEHOLD_NAMES"))
	if err != nil {
		return err
	}
	told := untilToldToStop()
	s, err := filehold.Open(dir)
	if err != nil {
		return err
	}
	turns := 0
	for ; turns == 0 || told.Err() == nil; turns++ {
		n := (turns + os.Getpid()) % names
		h, err := s.Mutex(fmt.Sprint("sheet", n)).Acquire(context.Background())
		if err != nil {
			return err
		}
		if err := note(fmt.Sprint(os.Getenv("FILEHOLD_SHEET"), n), uint64(h.Token())); err != nil {
			return err
		}
		if err := h.Release(); err != nil {
			return err
		}
	}
	fmt.Println(turns)
	return s.Close()
}

// note counts on a sheet, which nobody else may write meanwhile.
func note(sheet string, token uint64) error {
	guard, err := os.OpenFile(sheet+".guard", os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return fmt.Errorf("two are inside: %w", err)
	}
	text, err := os.ReadFile(sheet)
	var count, last uint64
	if err == nil {
		_, err = fmt.Sscan(string(text), &count, &last)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if token <= last {
		return fmt.Errorf("after the token %d came %d", last, token)
	}
	err = os.WriteFile(sheet, []byte(strings.TrimSpace(fmt.Sprintln(count+1, token))), 0o666)
	return errors.Join(err, guard.Close(), os.Remove(guard.Name()))
}
