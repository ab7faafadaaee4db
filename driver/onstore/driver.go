package onstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// Options say what the engine is.
type Options struct {
	// Info is what the engine is called and how long its names are. Its
	// features are added to those that every store has.
	Info driver.Info
	// Place names what the store keeps its keys in, such as a server and a
	// bucket: drivers of a process with the same place wait in one line. Empty:
	// this one waits alone.
	Place string
	// Timeout bounds one request to the engine, but not a List, nor a Forget or
	// Sweep of a [driver.Sweeper]; 0: 2 seconds.
	Timeout time.Duration
	// Close is called when the driver is closed; it may be nil.
	Close func() error
	_     struct{}
}

// New returns a driver on a store.
func New(s driver.Store, o Options) driver.Driver {
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Second
	}
	d := &onStore{store: s, Options: o, line: borrow(o.Place), holds: map[*hold]struct{}{}, fault: func(string, string, error) {}, wall: time.Now}
	d.life, d.kill = context.WithCancel(context.Background())
	return d
}

type onStore struct {
	driver.Base
	Options
	store driver.Store
	line  *shared
	life  context.Context
	kill  context.CancelFunc
	fault func(op, name string, err error)
	work  sync.WaitGroup
	wall  func() time.Time // this machine's clock

	mu                  sync.Mutex
	holds               map[*hold]struct{}
	seenLocks, seenKeys sightings
	closed              bool
	idle                map[string]sight // locks that this driver gave back
	untidy              bool             // the engine does not let them be removed
	tidy                *time.Timer      // of the next look at them; nil: there are none
}

var _ driver.Driver = (*onStore)(nil)

// Info is the engine's, with what every store can do.
func (d *onStore) Info() driver.Info {
	i := d.Options.Info
	i.Features = maps.Clone(i.Features)
	if i.Features == nil {
		i.Features = map[driver.Feature]bool{}
	}
	for _, f := range []driver.Feature{
		driver.FeatureFencing, driver.FeatureAll, driver.FeatureCounter, driver.FeatureSequence, driver.FeatureKV, driver.FeatureWatch, driver.FeatureSweep, driver.FeatureLimit,
	} {
		i.Features[f] = true
	}
	if i.MinTTL == 0 {
		i.MinTTL, i.MaxTTL = time.Second, 24*time.Hour
	}
	return i
}

// OnFault sets what is told about background failures.
func (d *onStore) OnFault(f func(op, name string, err error)) { d.fault = f }

// Ping reads a key.
func (d *onStore) Ping(ctx context.Context) error {
	return d.call(ctx, func(ctx context.Context) error {
		_, err := d.get(ctx, lockPrefix)
		return unread(ctx, err)
	})
}

// call runs f unless the driver is closed; its end ends f's context.
func (d *onStore) call(ctx context.Context, f func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return gaveup.Error(ctx, driver.NotDone)
	}
	if !d.begin() {
		return errClosed
	}
	defer d.work.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.life, func() { cancel(errClosed) })()
	err := f(ctx)
	if err != nil && d.life.Err() != nil {
		return cutShort(err)
	}
	return err
}

// cutShort is the error of a call that Close has ended: whether it was done is what the
// call has found out.
func cutShort(err error) error {
	closed := &driver.Error{Kind: driver.ErrClosed, Outcome: driver.Unknown}
	if e, ok := errors.AsType[*driver.Error](err); ok {
		closed.Outcome = e.Outcome
	}
	return closed
}

func (d *onStore) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.work.Add(1)
	}
	return !d.closed
}

var errClosed error = &driver.Error{Kind: driver.ErrClosed, Outcome: driver.NotDone}

// Close gives back every hold and ends everything that waits.
func (d *onStore) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	if d.tidy != nil {
		d.tidy.Stop()
	}
	d.mu.Unlock()
	d.kill()
	d.finish(ctx)
	d.mu.Lock() // what was under way may have been granted
	list := slices.Collect(maps.Keys(d.holds))
	d.mu.Unlock()
	var all sync.WaitGroup
	errs := make([]error, len(list))
	for i, h := range list {
		h.session.End(driver.ErrClosed)
		all.Go(func() {
			if err := h.free(ctx); !errors.Is(err, driver.ErrLost) { // of a loss its holder was told
				errs[i] = err
			}
		})
	}
	all.Wait()
	d.line.giveBack(d.Place)
	if d.Options.Close != nil {
		errs = append(errs, d.Options.Close())
	}
	return errors.Join(errs...)
}

// finish waits for what is under way, or for the end of ctx.
func (d *onStore) finish(ctx context.Context) {
	over := make(chan struct{})
	go func() { d.work.Wait(); close(over) }()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// get is one request.
func (d *onStore) get(ctx context.Context, key string) (driver.Item, error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	return d.store.Get(ctx, key)
}

func (d *onStore) swap(ctx context.Context, key string, old driver.Revision, value any) (driver.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	return d.store.Swap(ctx, key, old, encode(value))
}

func (d *onStore) remove(ctx context.Context, key string, old driver.Revision) (driver.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	return d.store.Delete(ctx, key, old)
}

// all reads the keys with a prefix.
func (d *onStore) all(ctx context.Context, p pace, prefix string) (items []driver.Item, err error) {
	err = retry(ctx, p, func() (progress, error) {
		items, err = d.store.List(ctx, prefix)
		return looked, err
	})
	return items, plain(err)
}

// pace is how tries follow each other.
type pace struct {
	first, most time.Duration
	tries       int // 0: until the context ends
	// failing is how long requests may go unanswered until it is given up; 0:
	// until tries are used up.
	failing time.Duration
}

var (
	// patient waits for locks: 10 ms doubling to a second.
	patient = pace{first: 10 * time.Millisecond, most: time.Second, tries: 100}
	// endless is patient until the context ends.
	endless = pace{first: patient.first, most: patient.most}
	// unhurried is endless for what thousands may do at the same time, for long: its pauses are 15 s at most.
	unhurried = pace{first: patient.first, most: 10 * time.Second}
	// quick changes counters, sequences and keys: about a millisecond.
	quick = pace{first: time.Millisecond, most: time.Millisecond, tries: 100}
)

// failing is how long a call that does not wait for anybody asks an engine that
// does not answer.
func (d *onStore) failing() time.Duration { return 4 * d.Timeout }

// quickly is quick, as long as the engine answers.
func (d *onStore) quickly() pace { return d.bounded(quick) }

func (d *onStore) bounded(p pace) pace {
	p.failing = d.failing()
	return p
}

// pause is the time to wait after try n, from 0 on: half to one and a half times
// what was doubled n times.
func (p pace) pause(n int) time.Duration {
	d := p.most
	if n < 20 {
		d = min(p.first<<n, p.most)
	}
	return d/2 + rand.N(d)
}

// sleep waits; false: ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// progress is how far a try came.
type progress uint8

const (
	blind  progress = iota // it could not even read
	looked                 // it read, and nothing is on its way
	sent                   // it sent a change
)

// retry runs step until it is decided. A conflict or a failed request is tried
// again, at most so often and so long as p says; what the error says about the
// outcome is what the last step that could read has found.
func retry(ctx context.Context, p pace, step func() (progress, error)) error {
	last := errOthers
	maybe := false
	answered, try := driver.Now(), 0
	for ; (p.tries == 0 || try < p.tries) && (p.failing == 0 || driver.Now().Sub(answered) < p.failing); try++ {
		how, err := step()
		if err == nil || decided(err) {
			return outcome(err, maybe)
		}
		conflict := errors.Is(err, driver.ErrConflict)
		if conflict {
			last, answered = errOthers, driver.Now()
		} else {
			last = err
		}
		if how != blind {
			maybe = how == sent && (maybe || !conflict) // what was sent before may come late
		}
		if ctx.Err() != nil || !sleep(ctx, p.pause(try)) {
			return outcome(gaveup.Error(ctx, driver.NotDone), maybe)
		}
	}
	return outcome(&driver.Error{Kind: driver.ErrUnavailable, RetryAfter: p.most, Outcome: driver.NotDone, Err: &givenUp{try, last}}, maybe)
}

// errOthers is why retry ends with an engine that answers.
var errOthers = errors.New("others changed it each time")

// givenUp is what retry ends with.
type givenUp struct {
	tries int
	last  error
}

func (g *givenUp) Error() string {
	return fmt.Sprintf("given up after %d attempts: %v", g.tries, g.last)
}

func (g *givenUp) Unwrap() error { return g.last }

// outcome notes that a request may have been done. What a step itself has found
// out stays as it is.
func outcome(err error, maybe bool) error {
	e, ok := err.(*driver.Error)
	if !ok || !maybe {
		return err
	}
	unsure := *e
	unsure.Outcome = driver.Unknown
	return &unsure
}

// final is an error that no further try changes.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// decided reports a final error, or the engine's last word.
func decided(err error) bool {
	switch e := err.(type) {
	case final:
		return true
	case *driver.Error:
		return e.Kind != driver.ErrConflict
	}
	return false
}

// unread is the error of a request that is not tried again.
func unread(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return gaveup.Error(ctx, driver.NotDone)
	case decided(err):
		return plain(err)
	}
	return &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone, Err: err}
}

// plain takes a final error out of its wrapping.
func plain(err error) error {
	if f, ok := err.(final); ok {
		return f.error
	}
	return err
}

func hexID(id [16]byte) string { return hex.EncodeToString(id[:]) }
