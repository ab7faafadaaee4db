package fence

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/holdfast-io/holdfast/driver"
)

// Dir checks tokens in a directory of small files: what it remembers survives
// restarts and power loss, and all processes of one machine that use the same
// directory share it. Set the fields before the first call. It is safe for
// concurrent use and must not be copied.
//
// A token is on disk before its operation begins; repeating a token writes
// nothing. Processes keep each other out with flock, so the directory belongs on
// a local file system, and its users run as one user of the system. Where there
// is no flock every call is errors.ErrUnsupported.
//
// A state file that cannot be understood is an error that names it, and stays
// as it is: guessing would let stale tokens pass. Deleting it forgets the
// resource, like [Dir.Forget]. A directory that vanishes while in use is not
// made anew, for the same reason.
type Dir struct {
	// Path is the directory. The first call makes it if it is missing; its
	// parent must exist.
	Path string
	// Strict refuses a token that has passed before, as in [Gate].
	Strict bool

	mu    sync.Mutex
	made  bool
	turns map[string]*turn // of the resources in use in this process
	// synced is the hash of the state of each resource that surely is on disk, as far as this Dir has
	// seen to it: the state itself may be long.
	synced map[string][sha256.Size]byte
	disk   disk // nil: that of the system
}

// maxSynced is how many resources are remembered as on disk. What is forgotten is synced once
// more.
const maxSynced = 10_000

var errNoPath = errors.New("Dir.Path is empty; name a directory")

// Check lets a token pass or refuses it. It waits while an operation with a
// conflicting mode runs, at most until ctx ends. As with [Gate.Check] a newer
// token can pass before the caller has written; [Dir.Do] prevents that.
func (d *Dir) Check(ctx context.Context, resource string, token Token, mode Mode) error {
	return d.do(ctx, "fence check", Pass{resource, token, mode}, func(context.Context) error { return nil })
}

// Do is [Gate.Do] over the processes of this machine. Among the waiters of one
// process the order is that of arrival; among processes the one that looks first wins,
// but readers do not overtake a waiting writer.
func (d *Dir) Do(ctx context.Context, resource string, token Token, mode Mode, f func(context.Context) error) error {
	return d.do(ctx, "fence do", Pass{resource, token, mode}, f)
}

func (d *Dir) do(ctx context.Context, op string, p Pass, f func(context.Context) error) error {
	if err := p.check(op); err != nil {
		return err
	}
	if err := d.make(); err != nil {
		return failed(op, p.Resource, err)
	}
	if err := d.peek(p); err != nil {
		return d.explain(ctx, op, p, err)
	}
	if err := d.take(ctx, p); err != nil {
		return d.explain(ctx, op, p, err)
	}
	defer d.leave(p)
	turn, err := d.admit(ctx, p)
	if err != nil {
		return d.explain(ctx, op, p, err)
	}
	defer turn.Close()
	return f(NewContext(ctx, p))
}

// make makes the directory durable before the first token relies on it.
func (d *Dir) make() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.made:
		return nil
	case !canFlock:
		return errors.ErrUnsupported
	case d.Path == "":
		return errNoPath
	}
	if err := os.Mkdir(d.Path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := (osDisk{}).SyncDir(filepath.Dir(filepath.Clean(d.Path))); err != nil {
		return err
	}
	d.made = true
	return nil
}

// peek refuses without a lock what is stale already. State only grows, so that
// a refusal stays right; and a state file is replaced as a whole.
func (d *Dir) peek(p Pass) error {
	s, err := d.load(p.Resource)
	if err != nil {
		return err
	}
	return s.check(p, d.Strict)
}

// take queues in this process, so that at most one of its waiters, or one batch
// of readers, asks the kernel.
func (d *Dir) take(ctx context.Context, p Pass) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.turns[p.Resource]
	if t == nil {
		t = &turn{}
		if d.turns == nil {
			d.turns = map[string]*turn{}
		}
		d.turns[p.Resource] = t
	}
	err := t.take(ctx, &d.mu, p.Mode)
	d.tidy(p.Resource)
	return err
}

func (d *Dir) leave(p Pass) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turns[p.Resource].leave()
	d.tidy(p.Resource)
}

// tidy drops a queue that nobody uses; the disk remembers the rest.
func (d *Dir) tidy(resource string) {
	if t := d.turns[resource]; t != nil && t.idle() {
		delete(d.turns, resource)
	}
}

// admit waits for the other processes, then checks and records. The first lock
// guards the state and is the door at which all stand in line; the second is
// held through the operation, by the file that admit returns.
func (d *Dir) admit(ctx context.Context, p Pass) (*os.File, error) {
	door, err := lockFile(ctx, d.file(p.Resource, ".lock"), Exclusive)
	if err != nil {
		return nil, err
	}
	defer door.Close()
	turn, err := lockFile(ctx, d.file(p.Resource, ".turn"), p.Mode)
	if err != nil {
		return nil, err
	}
	if err := d.pass(p); err != nil {
		turn.Close()
		return nil, err
	}
	return turn, nil
}

// pass checks and records while the door is locked.
func (d *Dir) pass(p Pass) error {
	s, err := d.load(p.Resource)
	if err != nil {
		return err
	}
	if err := s.check(p, d.Strict); err != nil {
		return err
	}
	changed := s.record(p, d.Strict)
	return d.persist(p.Resource, encodeState(p.Resource, s), changed)
}

// persist brings the state of a resource to the disk. One that was there before is in its
// file, but not surely on disk: another process, or this one, may have ended or failed
// before it had synced the file's name.
func (d *Dir) persist(resource string, state []byte, changed bool) error {
	sum := sha256.Sum256(state)
	d.mu.Lock()
	known := d.synced[resource] == sum
	d.mu.Unlock()
	disk, path := cmp.Or[disk](d.disk, osDisk{}), d.file(resource, "")
	switch {
	case changed:
		if err := replace(disk, path, state); err != nil {
			return err
		}
	case !known:
		if err := disk.SyncDir(filepath.Dir(path)); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.synced) >= maxSynced || d.synced == nil {
		d.synced = map[string][sha256.Size]byte{}
	}
	d.synced[resource] = sum
	return nil
}

// load reads what is remembered; a missing file is a resource never seen.
func (d *Dir) load(resource string) (state, error) {
	path := d.file(resource, "")
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, d.present()
	}
	if err != nil {
		return state{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxStateFile+1))
	if err != nil {
		return state{}, err
	}
	s, err := decodeState(resource, data)
	if err != nil {
		return state{}, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf(
			"damaged: %w; put the file back from a backup, or delete it once no holder older than the present one can write", err)}
	}
	return s, nil
}

// present tells a resource without a file from a directory that is gone.
func (d *Dir) present() error {
	_, err := os.Stat(d.Path)
	return err
}

// file is a path that any name fits into.
func (d *Dir) file(resource, suffix string) string {
	sum := sha256.Sum256([]byte(resource))
	return filepath.Join(d.Path, hex.EncodeToString(sum[:])+suffix)
}

// Last tells the newest exclusive and shared token that passed; 0: none.
func (d *Dir) Last(resource string) (exclusive, shared Token, err error) {
	const op = "fence last"
	if err := checkName(resource); err != nil {
		return 0, 0, driver.Errorf(op, resource, fs.ErrInvalid, "%w", err)
	}
	if err := d.make(); err != nil {
		return 0, 0, failed(op, resource, err)
	}
	s, err := d.load(resource)
	if err != nil {
		return 0, 0, failed(op, resource, err)
	}
	return s.exclusive, s.shared, nil
}

// Forget removes the files of a resource, damaged or not. Danger: the next token
// of that resource passes, however stale; see [Gate.Forget]. A resource with an
// operation in progress, in any process, is driver.ErrHeld; an unknown one is no
// error.
func (d *Dir) Forget(resource string) error {
	const op = "fence forget"
	if err := checkName(resource); err != nil {
		return driver.Errorf(op, resource, fs.ErrInvalid, "%w", err)
	}
	if err := d.make(); err != nil {
		return failed(op, resource, err)
	}
	err := d.forget(resource)
	if errors.Is(err, errBusy) {
		return driver.Errorf(op, resource, driver.ErrHeld, "an operation is in progress; try again after it")
	}
	if err != nil {
		return failed(op, resource, err)
	}
	return nil
}

func (d *Dir) forget(resource string) error {
	for _, suffix := range []string{".lock", ".turn"} {
		f, err := tryLockFile(d.file(resource, suffix), Exclusive)
		if err != nil {
			return err
		}
		defer f.Close()
	}
	for _, suffix := range []string{"", ".tmp", ".turn", ".lock"} {
		if err := os.Remove(d.file(resource, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return (osDisk{}).SyncDir(d.Path)
}

// explain gives an error its kind: a refusal, the caller's context, or the disk.
func (d *Dir) explain(ctx context.Context, op string, p Pass, err error) error {
	if _, ok := errors.AsType[*Refusal](err); ok || errors.Is(err, errUsedFull) {
		return refuse(op, p, err)
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return ended(ctx, op, p)
	}
	return failed(op, p.Resource, err)
}

// failed is an error of the disk: the operation did not run.
func failed(op, resource string, err error) error {
	e := &driver.Error{Op: op, Name: resource, Outcome: driver.NotDone, Err: err}
	switch {
	case errors.Is(err, errNoPath):
		e.Kind = fs.ErrInvalid
	case errors.Is(err, errors.ErrUnsupported):
		e.Kind = errors.ErrUnsupported
	}
	return e
}
