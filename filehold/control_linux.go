package filehold

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/filelog"
)

// control is the control file, mapped: counting a token costs no system call.
type control struct {
	path string
	f    *os.File
	fd   int
	page []byte
	word []uint64
	sync func(fd int) error
	// known is the version up to which this program understands what is there.
	known uint64

	broken atomic.Bool
}

// openControl maps the control file of sub, which it makes if there is none.
func openControl(sub string, perm fs.FileMode, known uint64, sync func(int) error) (*control, error) {
	path := filepath.Join(sub, "control")
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeControl(sub, path, perm); err == nil {
			f, err = os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
		}
	}
	if err != nil {
		return nil, err
	}
	c := &control{path: path, f: f, fd: int(f.Fd()), known: known, sync: sync}
	if err := c.mapIt(); err != nil {
		_ = f.Close()
		return nil, err
	}
	return c, nil
}

// makeControl makes it whole under another name first; the first process wins.
// A log without a control file is no new directory, unless another has made both
// since we looked: the control file is there before the log.
func makeControl(sub, path string, perm fs.FileMode) error {
	if _, err := os.Lstat(filepath.Join(sub, filelog.Name)); err == nil {
		if _, err := os.Lstat(path); err == nil {
			return nil
		}
		return filelog.Damaged(path, "it is missing beside a log")
	}
	tmp, err := tempFile(sub, "control", perm)
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(newControl(time.Now(), int64(time.Second)-int64(boottime())))
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(sub)
}

func (c *control) mapIt() error {
	if err := c.check(); err != nil {
		return filelog.Damaged(c.path, err.Error())
	}
	page, err := syscall.Mmap(c.fd, 0, controlSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return &fs.PathError{Op: "mmap", Path: c.path, Err: err}
	}
	c.page = page
	c.word = unsafe.Slice((*uint64)(unsafe.Pointer(&page[0])), words)
	return nil
}

// unsteady is how long words that do not fit may be those of a process that is between two of them.
const unsteady = time.Second

// check says what is wrong with the file. Other processes write its words one after the other meanwhile, so that what is
// wrong has to last.
func (c *control) check() error {
	b := make([]byte, controlSize+1)
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		n, _ := c.f.ReadAt(b, 0)
		err := checkControl(b[:n])
		if err == nil || !isControl(b[:n]) || time.Since(began) > unsteady {
			return err
		}
	}
}

func (c *control) close() error {
	return errors.Join(syscall.Munmap(c.page), c.f.Close())
}

// load and store survive a file that was cut short while it is mapped: the
// word is then 0, and broken says why nothing works any more.
func (c *control) load(i int) (v uint64) {
	defer c.rescue(debug.SetPanicOnFault(true))
	return atomic.LoadUint64(&c.word[i])
}

func (c *control) store(i int, v uint64) {
	defer c.rescue(debug.SetPanicOnFault(true))
	atomic.StoreUint64(&c.word[i], v)
}

func (c *control) swap(i int, old, v uint64) (ok bool) {
	defer c.rescue(debug.SetPanicOnFault(true))
	return atomic.CompareAndSwapUint64(&c.word[i], old, v)
}

func (c *control) add(i int, d int) {
	for {
		if old := c.load(i); c.swap(i, old, old+uint64(d)) || c.broken.Load() {
			return
		}
	}
}

// rescue is deferred around every touch of the page.
func (c *control) rescue(before bool) {
	debug.SetPanicOnFault(before)
	p := recover()
	if p == nil {
		return
	}
	if !isFault(p) {
		panic(p)
	}
	c.broken.Store(true)
}

// err says that the file was cut short or deleted under us, or that a newer
// program has taken the directory over. The first is for good, and so [driver.ErrClosed], too.
func (c *control) err() error {
	var st syscall.Stat_t
	if is := c.load(wVersion); is > c.known {
		return newer(c.path, is, c.known)
	}
	if c.load(wMagic) == controlMagic && !c.broken.Load() && syscall.Fstat(c.fd, &st) == nil && st.Nlink > 0 {
		return nil
	}
	return driver.Errorf("", c.path, driver.ErrUnavailable,
		"%w for this program: the file was deleted or cut short while it was in use: close every program that uses the directory, then remove the rest of it", driver.ErrClosed)
}

// adopt says that the directory has from now on what this program writes. The store
// is locked.
func (c *control) adopt() error {
	if c.load(wVersion) >= c.known {
		return nil
	}
	c.store(wVersion, c.known)
	return c.flush()
}

// flush puts the page on disk.
func (c *control) flush() error {
	if err := c.sync(c.fd); err != nil {
		return &fs.PathError{Op: "sync", Path: c.path, Err: err}
	}
	return nil
}

// raise sets a ceiling and puts it on disk. The store is locked.
func (c *control) raise(word int, to uint64) error {
	if to >= 1<<53 {
		return driver.Errorf("", c.path, driver.ErrExhausted, "tokens have come to 2⁵³: use another directory")
	}
	c.store(word+1, ^to)
	c.store(word, to)
	return c.flush()
}

// draw takes the next token; false: the ceiling has to be raised first.
func (c *control) draw() (uint64, bool) {
	for {
		last := c.load(wNext)
		if last >= c.load(wOpen) {
			return 0, false
		}
		if c.swap(wNext, last, last+1) {
			return last + 1, true
		}
	}
}

// reach moves the tokens on, so that the next is above least. The store is
// locked.
func (c *control) reach(least uint64) error {
	for {
		last := c.load(wNext)
		top := max(last, least)
		if top >= c.load(wOpen) {
			if err := c.raise(wCeiling, top+tokenBlock); err != nil {
				return err
			}
			c.store(wOpen, top+tokenBlock)
		}
		if last >= least || c.swap(wNext, last, least) {
			return nil
		}
	}
}
