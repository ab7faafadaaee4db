package filehold_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/filehold"
)

// stuck has the store's lock, as a process that was stopped with it, until the function
// is called.
func stuck(t *testing.T, dir string) (free func()) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, ".holdfast", "control"))
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	free = func() { _ = f.Close() }
	t.Cleanup(free)
	return free
}

// twoClients are drivers of one directory in one process. The second closes with the test,
// and the first unless the test does that.
func twoClients(t *testing.T, dir string, both bool) (list [2]driver.Driver) {
	t.Helper()
	for i := range list {
		d, err := filehold.New(dir)
		if err != nil {
			t.Fatal(err)
		}
		if list[i] = d; i > 0 || both {
			t.Cleanup(func() { _ = d.Close(deadline(t)) })
		}
	}
	return list
}

var (
	aSeat = driver.Want{Name: "seat", Kind: driver.Semaphore, Mode: driver.Shared, Weight: 1, Limit: 1}
	aLock = driver.Want{Name: "lock", Kind: driver.Mutex, Weight: 1}
)

// taken acquires wants, or fails the test.
func taken(t *testing.T, d driver.Driver, r *driver.Request) driver.Grant {
	t.Helper()
	g, err := d.Acquire(deadline(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// soon is a context that ends before a stuck store is free.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// quickly fails the test if f does not return although the store is stuck.
func quickly(t *testing.T, what string, f func()) {
	t.Helper()
	over := make(chan struct{})
	go func() { defer close(over); f() }()
	select {
	case <-over:
	case <-time.After(30 * time.Second):
		t.Errorf("%s waits for the store's lock", what)
	}
}

// The end of a session that could not be told is told later: what it held is free
// although its process lives on.
func TestStuck_EndOfASession(t *testing.T) {
	dir := t.TempDir()
	d := twoClients(t, dir, true)
	session, err := d[0].OpenSession(deadline(t), driver.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	taken(t, d[0], &driver.Request{ID: [16]byte{1}, Wants: []driver.Want{aSeat}, Session: session})
	free := stuck(t, dir)
	if err := d[0].EndSession(soon(t), session); err == nil {
		t.Error("the end of a session is told to a store that is stuck")
	}
	free()
	taken(t, d[1], &driver.Request{ID: [16]byte{2}, Wants: []driver.Want{aSeat}})
}

// A Close that ran out of time has given its lock files back, and the rest is given back
// when the store is free.
func TestStuck_Close(t *testing.T) {
	dir := t.TempDir()
	d := twoClients(t, dir, false)
	taken(t, d[0], &driver.Request{ID: [16]byte{1}, Wants: []driver.Want{aSeat}})
	taken(t, d[0], &driver.Request{ID: [16]byte{2}, Wants: []driver.Want{aLock}})
	other := driver.Want{Name: "other", Kind: driver.Mutex, Weight: 1}
	taken(t, d[1], &driver.Request{ID: [16]byte{3}, Wants: []driver.Want{other}}) // its session is open
	free := stuck(t, dir)
	answered, err := filehold.Hang(d[0])
	if err != nil {
		t.Fatal(err)
	}
	quickly(t, "Close", func() {
		if err := d[0].Close(soon(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close of a store that is stuck: %v", err)
		}
	})
	taken(t, d[1], &driver.Request{ID: [16]byte{4}, Wants: []driver.Want{aLock}})
	free()
	answered()
	taken(t, d[1], &driver.Request{ID: [16]byte{5}, Wants: []driver.Want{aSeat}})
}

// Calls that wait for the store's lock end with Close, which needs no time of its own for them.
func TestStuck_CallsEndWithClose(t *testing.T) {
	dir := t.TempDir()
	d := twoClients(t, dir, false)
	seat := taken(t, d[0], &driver.Request{ID: [16]byte{1}, Wants: []driver.Want{aSeat}})
	stuck(t, dir)
	calls := map[string]func(context.Context) error{
		"count": func(ctx context.Context) error {
			_, err := d[0].Count(ctx, &driver.CountRequest{Name: "c", Op: driver.CountAdd, A: 1})
			return err
		},
		"acquire": func(ctx context.Context) error {
			_, err := d[0].Acquire(ctx, &driver.Request{ID: [16]byte{2}, Wants: []driver.Want{{Name: "table", Kind: driver.Semaphore, Mode: driver.Shared, Weight: 1, Limit: 1}}})
			return err
		},
		"release": seat.Handle.Release,
		"session": func(ctx context.Context) error {
			_, err := d[0].OpenSession(ctx, driver.Spec{})
			return err
		},
	}
	type end struct {
		name string
		err  error
	}
	ends := make(chan end, len(calls))
	for name, call := range calls {
		go func() { ends <- end{name, call(context.Background())} }()
	}
	eventually(t, "the calls do not begin", func() bool { return filehold.Calls(d[0]) == len(calls) })
	quickly(t, "Close", func() { _ = d[0].Close(soon(t)) })
	for range calls {
		select {
		case e := <-ends:
			if !errors.Is(e.err, driver.ErrClosed) {
				t.Errorf("%s ends with %v", e.name, e.err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("a call waits for the store's lock after Close")
		}
	}
}

// Callers that leave do not wait for the store's lock: neither a watch nor one that has
// something of several names.
func TestStuck_CallersLeave(t *testing.T) {
	dir := t.TempDir()
	d := twoClients(t, dir, true)
	second := driver.Want{Name: "table", Kind: driver.Semaphore, Mode: driver.Shared, Weight: 1, Limit: 1}
	taken(t, d[1], &driver.Request{ID: [16]byte{1}, Wants: []driver.Want{second}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, waits := make(chan struct{}), make(chan struct{})
	watched, acquired := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(watched)
		for ev := range d[0].Watch(ctx, &driver.WatchRequest{}) {
			if ev.Verb == driver.VerbReady {
				close(ready)
			}
		}
	}()
	<-ready
	go func() {
		_, err := d[0].Acquire(ctx, &driver.Request{ID: [16]byte{2}, Wants: []driver.Want{aSeat, second}, Waiting: func(int) { close(waits) }})
		acquired <- err
	}()
	<-waits
	free := stuck(t, dir)
	cancel()
	quickly(t, "a watch", func() { <-watched })
	quickly(t, "an Acquire of several names", func() {
		if err := <-acquired; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	free()
	taken(t, d[1], &driver.Request{ID: [16]byte{3}, Wants: []driver.Want{aSeat}})
}

// A Release does not wait for a Proclaim that waits for the store's lock: it ends with its context.
func TestStuck_ReleaseDuringAChange(t *testing.T) {
	dir := t.TempDir()
	d := twoClients(t, dir, true)
	leader := taken(t, d[0], &driver.Request{ID: [16]byte{1}, Wants: []driver.Want{aChair}})
	free := stuck(t, dir)
	proclaimed := make(chan error, 1)
	go func() {
		value := []byte("here")
		_, err := leader.Handle.Change(context.Background(), driver.Change{Proclaim: &value})
		proclaimed <- err
	}()
	eventually(t, "the call does not begin", func() bool { return filehold.Calls(d[0]) == 1 })
	quickly(t, "Release", func() {
		if err := leader.Handle.Release(soon(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Release while the store is stuck: %v", err)
		}
	})
	free()
	if err := <-proclaimed; err != nil {
		t.Error(err)
	}
}

var aChair = driver.Want{Name: "chair", Kind: driver.Election, Weight: 1}

// A leadership that was handed over leaves nothing in its program.
func TestHandedOverIsForgotten(t *testing.T) {
	d := twoClients(t, t.TempDir(), true)
	leader := taken(t, d[0], &driver.Request{ID: [16]byte{1}, Wants: []driver.Want{aChair}})
	waits, next := make(chan struct{}), make(chan driver.Grant, 1)
	go func() {
		next <- taken(t, d[1], &driver.Request{ID: [16]byte{2}, Wants: []driver.Want{aChair}, Spec: driver.Spec{Owner: "next"}, Waiting: func(int) { close(waits) }})
	}()
	<-waits
	if _, err := leader.Handle.Change(deadline(t), driver.Change{HandOver: "next"}); err != nil {
		t.Fatal(err)
	}
	if err := (<-next).Handle.Release(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if n := filehold.Claims(d[0]); n != 0 {
		t.Errorf("%d claims are remembered when none is left", n)
	}
}

// The end of the last Space of a directory that is stuck keeps no other directory waiting.
func TestStuck_OtherDirectories(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	d, err := filehold.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	free := stuck(t, dir)
	left := make(chan error, 1)
	go func() { left <- filehold.Leave(d) }()
	eventually(t, "the directory is still in use", func() bool { return !filehold.InUse(d) })
	o, err := filehold.New(other)
	if err == nil {
		err = o.Close(t.Context())
	}
	if err != nil {
		t.Errorf("another directory was opened and closed: %v", err)
	}
	free()
	if err := <-left; err != nil { // nor has it waited so long that this one gave up
		t.Error(err)
	}
}

// An Acquire that has to tell a watcher ends with its context, leaves nothing taken, and is no fault that every
// client of the directory hears of.
func TestStuck_AcquireThatIsWatched(t *testing.T) {
	dir := t.TempDir()
	d := twoClients(t, dir, true)
	var faults atomic.Int32
	d[1].OnFault(func(string, string, error) { faults.Add(1) })
	taken(t, d[0], &driver.Request{ID: [16]byte{1}, Wants: []driver.Want{{Name: "first", Kind: driver.Mutex, Weight: 1}}})            // its session is open
	if err := taken(t, d[0], &driver.Request{ID: [16]byte{4}, Wants: []driver.Want{aLock}}).Handle.Release(deadline(t)); err != nil { // its file is there
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready := make(chan struct{})
	go func() {
		for ev := range d[1].Watch(ctx, &driver.WatchRequest{}) {
			if ev.Verb == driver.VerbReady {
				close(ready)
			}
		}
	}()
	<-ready
	free := stuck(t, dir)
	quickly(t, "an Acquire that has to tell a watcher", func() {
		leaving, leave := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, leave)
		if _, err := d[0].Acquire(leaving, &driver.Request{ID: [16]byte{2}, Wants: []driver.Want{aLock}}); !errors.Is(err, context.Canceled) {
			t.Errorf("an Acquire that was cancelled after 50ms ended with %v", err)
		}
	})
	if n := faults.Load(); n > 0 {
		t.Errorf("another client heard of %d faults", n)
	}
	free()
	taken(t, d[1], &driver.Request{ID: [16]byte{3}, Wants: []driver.Want{aLock}})
}

// A client is opened while calls of others of its directory fail: it may hear of that.
func TestFaultsBesideAnOpening(t *testing.T) {
	dir := t.TempDir()
	d := twoClients(t, dir, true)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	var failed atomic.Int64
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			filehold.Fail(d[0], errors.New("disk on fire"))
			failed.Add(1)
		}
	}()
	for range 20 {
		other, err := filehold.New(dir)
		if err != nil {
			t.Fatal(err)
		}
		other.OnFault(func(string, string, error) {})
		for before := failed.Load(); failed.Load() < before+2; { // one that began after it
			runtime.Gosched()
		}
		if err := other.Close(deadline(t)); err != nil {
			t.Error(err)
		}
	}
	cancel()
	<-over
}
