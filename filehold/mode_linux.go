package filehold

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/holdfast-io/holdfast/driver"
)

// A directory has one mode, which its control file has: the process that makes the directory
// chooses it, by the URL or by the umask, and whatever anybody makes in it later has
// it too, whatever the umask is then. What others may open by its name appears there
// with its mode, since between making and changing it they would be refused.

// lockTemp is what a lock file or a list of claims is called before it has its mode.
const lockTemp = "lock"

// dirPerm is the mode of directories beside files of a mode. What is made in one
// that a group shares is the group's, whatever group its maker is in first.
func dirPerm(perm fs.FileMode) fs.FileMode {
	dir := perm | perm&0o444>>2
	if perm&0o060 != 0 {
		dir |= fs.ModeSetgid
	}
	return dir
}

// setPerm gives an open file its mode, and reports whether the umask had taken some
// of it away; 0: it keeps the one that the umask left.
func setPerm(f *os.File, perm fs.FileMode) (bool, error) {
	if perm == 0 {
		return false, nil
	}
	st, err := f.Stat()
	if err != nil || st.Mode().Perm() == perm {
		return false, err
	}
	return true, f.Chmod(perm)
}

// makeFile makes an empty file that nobody else opens yet.
func makeFile(path string, perm fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o666)
	if err != nil {
		return err
	}
	_, err = setPerm(f, perm)
	return errors.Join(err, f.Close())
}

// linkNew makes an empty file at path, unless there is one.
func (e *engine) linkNew(temp, path string) error {
	tmp, err := tempFile(e.sub, temp, e.perm)
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if err := tmp.Close(); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// shared opens a file of the store, which is made if it is missing.
func (e *engine) shared(name string) (*os.File, error) {
	path := filepath.Join(e.sub, name)
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := e.linkNew(name, path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
}

// agree takes over the mode of a control file.
func (e *engine) agree(c *control) error {
	st, err := c.f.Stat()
	if err != nil {
		return err
	}
	asked := e.perm
	e.perm = st.Mode().Perm()
	return e.agrees(asked)
}

// agrees refuses a mode that is not the directory's; 0: any.
func (e *engine) agrees(asked fs.FileMode) error {
	if asked == 0 || asked == e.perm {
		return nil
	}
	return driver.Errorf("open", e.dir, fs.ErrInvalid, "the directory was made with the mode %#o, not %#o: leave mode out, or use another directory", e.perm, asked)
}

// makeDir makes the directory, if only its last element is missing, and with a mode
// also the directories of the store, all at once.
func makeDir(dir string, perm fs.FileMode) error {
	if perm == 0 {
		if err := os.Mkdir(dir, 0o777); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	}
	_, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return makeTree(dir, filepath.Join(".holdfast", liveDir), perm)
	case err != nil:
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, ".holdfast")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := widen(dir, perm); err != nil {
		return err
	}
	return makeTree(filepath.Join(dir, ".holdfast"), liveDir, perm)
}

// widen gives a directory that was there what it needs for a mode.
func widen(dir string, perm fs.FileMode) error {
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	const settable = fs.ModePerm | fs.ModeSetgid | fs.ModeSetuid | fs.ModeSticky
	if want := st.Mode()&settable | dirPerm(perm); want != st.Mode()&settable {
		return os.Chmod(dir, want)
	}
	return nil
}

// makeTree makes a directory with others in it under another name, and renames it:
// others find it whole or not at all. If there is one by then, that is used.
func makeTree(dir, below string, perm fs.FileMode) error {
	tmp := dir + tempExt + rand.Text()
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	err := os.MkdirAll(filepath.Join(tmp, below), 0o700)
	for path := filepath.Join(tmp, below); err == nil && len(path) >= len(tmp); path = filepath.Dir(path) {
		err = os.Chmod(path, dirPerm(perm))
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err == nil {
		return nil
	}
	gone := os.RemoveAll(tmp)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return gone
	}
	return errors.Join(err, gone)
}
