package filehold

import (
	"context"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/filelog"
)

// Seams are what tests replace.
type Seams struct {
	BootID           func() (string, error)
	SyncLog, SyncCtl func(fd int) error
	Fallback         time.Duration
	CompactAt        uint64
	Flock            func(fd, how int) error
	Unlink           func(dirfd int, file string) error
	Version          uint64
	Perm             fs.FileMode // of the URL
}

// NewWith is New with seams replaced. It has no effect on a directory that the
// process uses already.
func NewWith(dir string, change func(*Seams)) (driver.Driver, error) {
	p := production
	x := Seams{p.bootID, p.syncLog, p.syncCtl, p.fallback, p.compactAt, p.flock, p.unlink, p.version, 0}
	change(&x)
	return openWith(dir, x.Perm, seams{x.BootID, x.SyncLog, x.SyncCtl, x.Fallback, x.CompactAt, x.Flock, x.Unlink, x.Version})
}

// HalfSwitched makes the directory, which nobody uses, that of a process that
// was killed when it had put a new log into its place and not yet said so.
func HalfSwitched(dir string) error {
	c, err := openControl(filepath.Join(dir, ".holdfast"), 0, version, fdatasync)
	if err != nil {
		return err
	}
	old := uint64(filelog.At(filelog.Position(c.load(wEnd)).Generation()-1, 1<<20))
	c.store(wDurable, old)
	c.store(wEnd, old)
	c.store(wSwitching, 1)
	return c.close()
}

// SyncFailedElsewhere makes the log of the directory, which may be in use, one of which another
// process could not sync a page.
func SyncFailedElsewhere(dir string) error {
	c, err := openControl(filepath.Join(dir, ".holdfast"), 0, version, fdatasync)
	if err != nil {
		return err
	}
	c.store(wSuspect, filelog.Position(c.load(wEnd)).Generation())
	return c.close()
}

// LateToMakeControl is a process that found no control file and then, before it
// went on, was overtaken by another that made the whole store.
func LateToMakeControl(dir string) error {
	sub := filepath.Join(dir, ".holdfast")
	return makeControl(sub, filepath.Join(sub, "control"), 0)
}

// Version is what this program writes, and Unmark makes the directory, which
// nobody uses, one of before there were versions.
const Version = version

func Unmark(dir string) error {
	c, err := openControl(filepath.Join(dir, ".holdfast"), 0, version, fdatasync)
	if err != nil {
		return err
	}
	c.store(wVersion, 0)
	return c.close()
}

// TokenBlock is how many tokens may be skipped when the power fails.
const TokenBlock = tokenBlock

// MaxIdle is how many lock files stay open that nobody holds.
const MaxIdle = maxIdle

// Claims is how many claims the sessions of a driver remember.
func Claims(d driver.Driver) (n int) {
	e := d.(*client).e
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, u := range e.users {
		n += len(u.waits)
	}
	return n
}

// Fail tells the clients of d's directory of a failure in the background.
func Fail(d driver.Driver, err error) { d.(*client).e.failed("a test", err) }

// Hang begins a call that does not end before end is called, as one that waits for a disk.
func Hang(d driver.Driver) (end func(), err error) {
	c := d.(*client)
	_, err = c.begin(context.Background())
	return c.end, err
}

// Calls is how many calls of a driver are under way.
func Calls(d driver.Driver) int {
	c := d.(*client)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// Leave ends the driver's use of its directory, as the last thing of a Close.
func Leave(d driver.Driver) error { return d.(*client).e.leave() }

// InUse reports whether a driver that is opened would share the engine of this one.
func InUse(d driver.Driver) bool {
	engines.Lock()
	defer engines.Unlock()
	e := d.(*client).e
	return engines.byDir[e.self] == e
}
