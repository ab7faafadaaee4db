package storage_test

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// opened opens a store and tells of which other it is a copy.
func opened(t *testing.T, files storage.FS, dir string) (*storage.Store, *storage.Copied) {
	t.Helper()
	s, rec, err := storage.Open(files, dir, options)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s, rec.Copied
}

// copyOf is a copy of a directory as it is now.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	must(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// A copy of a directory is told from it, with its place and whether it was in use, until Settle makes it one
// of its own.
func TestCopied(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "original")
	s, copied := opened(t, storage.OS{}, dir)
	if copied != nil {
		t.Errorf("a new store is a copy of %+v", copied)
	}
	used := copyOf(t, dir)
	must(t, s.Close())
	closed := copyOf(t, dir)
	host, err := os.Hostname()
	must(t, err)
	for at, wasClosed := range map[string]bool{used: false, closed: true} {
		for range 2 {
			s, copied = opened(t, storage.OS{}, at)
			if copied == nil || copied.Here || copied.Closed != wasClosed || copied.From.Dir != dir || copied.From.Host != host {
				t.Fatalf("a copy, closed %v, is told as one of %+v", wasClosed, copied)
			}
			must(t, s.Close())
		}
		s, _ = opened(t, storage.OS{}, at)
		must(t, s.Settle())
		must(t, s.Close())
		if _, copied = opened(t, storage.OS{}, at); copied != nil {
			t.Errorf("it is its own by now, and told as a copy of %+v", copied)
		}
	}
	if _, copied = opened(t, storage.OS{}, dir); copied != nil {
		t.Errorf("the original is told as a copy of %+v", copied)
	}
}

// A directory that was renamed, or is opened by another path, is no copy, and of one with a damaged word
// or missing nothing is known.
func TestCopied_Not(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "original")
	s, _ := opened(t, storage.OS{}, dir)
	must(t, s.Close())
	renamed, link := filepath.Join(t.TempDir(), "renamed"), filepath.Join(t.TempDir(), "link")
	must(t, os.Rename(dir, renamed))
	must(t, os.Symlink(renamed, link))
	damaged, without := copyOf(t, renamed), copyOf(t, renamed)
	b, err := os.ReadFile(filepath.Join(damaged, "place"))
	must(t, err)
	b[len(b)-3] ^= 1
	must(t, os.WriteFile(filepath.Join(damaged, "place"), b, 0o600))
	must(t, os.Remove(filepath.Join(without, "place")))
	for _, at := range []string{renamed, link, damaged, without} {
		s, copied := opened(t, storage.OS{}, at)
		if copied != nil {
			t.Errorf("%s is told as a copy of %+v", at, copied)
		}
		must(t, s.Close())
	}
	if _, copied := opened(t, storage.OS{}, copyOf(t, damaged)); copied == nil {
		t.Error("the damaged word was not written anew")
	}
}

// restarted opens and closes a store until the word of where it lies is of another time than was: the clock of files
// may stand still for some milliseconds.
func restarted(t *testing.T, dir string, was storage.Place) {
	t.Helper()
	for now := was; now.Born == was.Born; now = placeIn(t, dir) {
		s, copied := opened(t, storage.OS{}, dir)
		if copied != nil {
			t.Fatalf("a directory that was left alone is told as a copy of %+v", copied)
		}
		must(t, s.Close())
	}
}

// placeIn is where the word of a directory lies.
func placeIn(t *testing.T, dir string) storage.Place {
	t.Helper()
	p, err := storage.OS{}.Place(filepath.Join(dir, "place"))
	must(t, err)
	if !p.Lasts || p.Born == 0 {
		t.Fatal("a file system that does not keep inodes and times of birth: TMPDIR names another")
	}
	return p
}

// runs runs a command.
func runs(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v, %s", args, err, out)
	}
}

// A copy that is put at the path of its original is one, by whichever way it came there, and is told as one from there. The original beside
// it is none, and what was restarted in between neither.
func TestCopied_Here(t *testing.T) {
	for name, back := range map[string]func(t *testing.T, dir, backup string){
		"moved": func(t *testing.T, dir, backup string) { runs(t, "mv", dir, dir+".old"); runs(t, "mv", backup, dir) },
		"copied": func(t *testing.T, dir, backup string) {
			runs(t, "mv", dir, dir+".old")
			runs(t, "cp", "-a", backup, dir)
		},
		"a copy of the original": func(t *testing.T, dir, backup string) {
			runs(t, "mv", dir, dir+".old")
			runs(t, "cp", "-a", dir+".old", dir)
		},
		"in place": func(t *testing.T, dir, backup string) { runs(t, "cp", "-a", backup+"/.", dir) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "node")
			s, _ := opened(t, storage.OS{}, dir)
			must(t, s.Close())
			was := placeIn(t, dir)
			runs(t, "cp", "-a", dir, dir+".bak")
			restarted(t, dir, was)
			back(t, dir, dir+".bak")
			s, copied := opened(t, storage.OS{}, dir)
			if copied == nil || !copied.Here || !copied.Closed {
				t.Fatalf("it is told as a copy of %+v", copied)
			}
			must(t, s.Settle())
			must(t, s.Close())
			if _, copied = opened(t, storage.OS{}, dir); copied != nil {
				t.Errorf("it is its own by now, and told as a copy of %+v", copied)
			}
			if _, err := os.Stat(dir + ".old"); err != nil {
				return
			}
			if _, copied = opened(t, storage.OS{}, dir+".old"); copied != nil {
				t.Errorf("the original is told as a copy of %+v", copied)
			}
		})
	}
}

// somewhere is a file system of which a test says where it is.
type somewhere struct {
	storage.FS
	at      storage.Place
	full    bool
	refuses error // of each new name
	sticks  error // of each removal
}

func (s *somewhere) Place(string) (storage.Place, error) { return s.at, nil }

func (s *somewhere) Create(name string) (storage.File, error) {
	if s.full && strings.HasPrefix(filepath.Base(name), "tmp-") {
		return nil, syscall.ENOSPC
	}
	return s.FS.Create(name)
}

func (s *somewhere) Rename(from, to string) error {
	if s.refuses != nil {
		return s.refuses
	}
	return s.FS.Rename(from, to)
}

func (s *somewhere) Remove(name string) error {
	if s.sticks != nil && filepath.Base(name) == "place" {
		return s.sticks
	}
	return s.FS.Remove(name)
}

// Where inodes and times of birth last, a file that is the same elsewhere is no copy, and another at the same path is one. Where they do not,
// or no time is known on either side, another inode at the same path is none. The same inode of another time or of none that is known, or on
// another machine of the same name, does not make it the same.
func TestCopied_Places(t *testing.T) {
	was, timeless := storage.Place{Host: "a", Machine: "1", Dir: "/data", File: 7, Born: 100}, storage.Place{Host: "a", Machine: "1", Dir: "/data", File: 7}
	odd := storage.Place{Host: "a", Machine: "1", Dir: "/data/\xff", File: 7, Born: 100}
	for name, c := range map[string]struct {
		was, now storage.Place
		copied   bool
	}{
		"as it was":                      {was, was, false},
		"another inode":                  {was, storage.Place{Host: "a", Machine: "1", Dir: "/data", File: 8, Born: 101}, false},
		"another where they last":        {was, storage.Place{Host: "a", Machine: "1", Dir: "/data", File: 8, Born: 101, Lasts: true}, true},
		"another inode of the time":      {was, storage.Place{Host: "a", Machine: "1", Dir: "/data", File: 8, Born: 100, Lasts: true}, true},
		"the inode of another time":      {was, storage.Place{Host: "a", Machine: "1", Dir: "/data", File: 7, Born: 101, Lasts: true}, true},
		"another, no time was known":     {timeless, storage.Place{Host: "a", Machine: "1", Dir: "/data", File: 8, Born: 101, Lasts: true}, false},
		"another, no time is known now":  {was, storage.Place{Host: "a", Machine: "1", Dir: "/data", File: 8, Lasts: true}, false},
		"as it was, and they last":       {was, storage.Place{Host: "a", Machine: "1", Dir: "/data", File: 7, Born: 100, Lasts: true}, false},
		"the disk on another machine":    {was, storage.Place{Host: "b", Machine: "2", Dir: "/mnt", File: 7, Born: 100}, false},
		"and they last":                  {was, storage.Place{Host: "b", Machine: "2", Dir: "/mnt", File: 7, Born: 100, Lasts: true}, false},
		"another directory":              {was, storage.Place{Host: "a", Machine: "1", Dir: "/copy", File: 8, Born: 101}, true},
		"another machine":                {was, storage.Place{Host: "b", Machine: "1", Dir: "/data", File: 8, Born: 101}, true},
		"another machine of the name":    {was, storage.Place{Host: "a", Machine: "2", Dir: "/data", File: 8, Born: 101}, true},
		"the inode by chance":            {was, storage.Place{Host: "b", Machine: "2", Dir: "/data", File: 7, Born: 200}, true},
		"no inode is known, and another": {was, storage.Place{Host: "b", Machine: "2", Dir: "/data"}, true},
		"the inode, of no known time":    {timeless, storage.Place{Host: "b", Machine: "2", Dir: "/data", File: 7}, true},
		"no time is known, as it was":    {timeless, timeless, false},
		"a name that is no UTF-8":        {odd, storage.Place{Host: "a", Machine: "1", Dir: "/data/\xff", File: 8, Born: 101}, false},
		"another that is none":           {odd, storage.Place{Host: "a", Machine: "1", Dir: "/data/\xfe", File: 8, Born: 101}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, _ := opened(t, &somewhere{FS: storage.OS{}, at: c.was}, dir)
			must(t, s.Close())
			if _, copied := opened(t, &somewhere{FS: storage.OS{}, at: c.now}, dir); (copied != nil) != c.copied {
				t.Errorf("it is told as a copy of %+v", copied)
			}
		})
	}
}

// Without room for the word where a store lies it is used all the same, and an older word, which may say that it was
// closed, is gone.
func TestCopied_WithoutRoom(t *testing.T) {
	dir := t.TempDir()
	s, _ := opened(t, storage.OS{}, dir)
	must(t, s.Close())
	at, err := storage.OS{}.Place(filepath.Join(dir, "place"))
	must(t, err)
	s, _ = opened(t, &somewhere{FS: storage.OS{}, at: at, full: true}, dir)
	if _, err := os.Stat(filepath.Join(dir, "place")); !os.IsNotExist(err) {
		t.Errorf("an older word stays: %v", err)
	}
	must(t, s.Append(storage.Batch{HardState: hard(1, 0, 0), Entries: entries(1, 1, 1, 64)}))
	must(t, s.Close())
	_, copied := opened(t, storage.OS{}, copyOf(t, dir))
	if copied != nil {
		t.Errorf("it is told as a copy of %+v, of which nothing is known", copied)
	}
}

// list is what a directory has.
func list(dir string) []os.DirEntry {
	entries, _ := os.ReadDir(dir)
	return entries
}

// So it is if there is room for the file, but not for its name; another error of that ends the store, as one of the removal does, since
// the older word would stay.
func TestCopied_WithoutItsName(t *testing.T) {
	for name, c := range map[string]struct {
		refuses, sticks error
		opens           bool
	}{
		"no room":              {syscall.ENOSPC, nil, true},
		"a quota":              {syscall.EDQUOT, nil, true},
		"read only":            {syscall.EROFS, nil, false},
		"no room, nor removal": {syscall.ENOSPC, syscall.EIO, false},
	} {
		dir := t.TempDir()
		s, _ := opened(t, &somewhere{FS: storage.OS{}, at: storage.Place{Host: "a", Dir: "/data"}}, dir)
		must(t, s.Close())
		s, _, err := storage.Open(&somewhere{FS: storage.OS{}, at: storage.Place{Host: "a", Dir: "/data"}, refuses: c.refuses, sticks: c.sticks}, dir, options)
		if (err == nil) != c.opens || !c.opens && !errors.Is(err, cmp.Or(c.sticks, c.refuses)) {
			t.Errorf("%s: it opens with %v", name, err)
		}
		if err != nil {
			continue
		}
		if names := list(dir); slices.ContainsFunc(names, func(e os.DirEntry) bool { return e.Name() == "place" || strings.HasPrefix(e.Name(), "tmp-") }) {
			t.Errorf("%s: left are %v", name, names)
		}
		must(t, s.Close())
	}
}

// A power cut does not bring back the word that a store was closed, once it is open again without room for another.
func TestCopied_WithoutRoomNorPower(t *testing.T) {
	disk := simdisk.New()
	files := &somewhere{FS: disk, at: storage.Place{Host: "a", Dir: "/data"}}
	s, _ := opened(t, files, "node")
	must(t, s.Close())
	files.full = true
	opened(t, files, "node")
	after := disk.Crash(func(int) int { return 0 }) // of what was not synced nothing is left
	if _, copied := opened(t, &somewhere{FS: after, at: storage.Place{Host: "b", Dir: "/data"}}, "node"); copied != nil {
		t.Errorf("it is told as a copy of %+v, by a word that was taken back", copied)
	}
}
