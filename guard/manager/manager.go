package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/guard/gather"
)

// The defaults.
const (
	DefaultStaleThreshold = 60 * time.Second
	DefaultHeartbeat      = 15 * time.Second
	DefaultInterval       = 30 * time.Second
)

// Config is that of a [Manager].
type Config struct {
	// Space has the locks, semaphores and events.
	Space *holdfast.Space
	// Gatherer finds what guards ask; nil: one that knows the Space alone.
	Gatherer *gather.Gatherer
	// Interval is how often maintenance looks for stale holders, in [Manager.Run];
	// default 30 s.
	Interval time.Duration
	// KeepStale has maintenance tell of stale holders, and not reclaim. Set it where other programs
	// hold the same names with [holdfast.ReclaimNever] or a grace: maintenance cannot tell them from a manager that was killed.
	KeepStale bool
	// Recheck is how often guards are looked at whatever was told; default 30 s.
	Recheck time.Duration
}

// Manager is safe for concurrent use.
type Manager struct {
	space    *holdfast.Space
	gatherer *gather.Gatherer
	interval time.Duration
	recheck  time.Duration
	keep     bool
	reclaims bool // the backend knows stale holders
	forces   bool // it ends the claims of others

	ctx    context.Context
	cancel context.CancelCauseFunc
	all    sync.WaitGroup

	telling chan struct{}     // held by the one that opens session
	session *holdfast.Session // of the events; nil: nothing was told

	mu         sync.Mutex
	locks      map[string]*resource
	semaphores map[string]*resource
	guards     map[string]*watched
}

// resource is a lock or a semaphore with its holders.
type resource struct {
	name      string
	slots     int64 // of a semaphore; 0: a lock
	threshold time.Duration
	heartbeat time.Duration
	holders   map[string]*holder
}

// holder is one that holds, or is about to.
type holder struct {
	name     string
	metadata string
	weight   int64
	session  *holdfast.Session
	hold     *holdfast.Hold // nil: it is asked for
	last     time.Time      // of its last heartbeat
	told     bool           // that it is stale
	before   *holder        // until it is freed: the one of its name that has lost its hold
	waits    bool           // it waits for the hold
	asked    chan struct{}  // closed when the backend has answered
}

// New makes a manager; [Manager.Close] ends it, with everything that it holds.
func New(c Config) (*Manager, error) {
	if c.Space == nil {
		return nil, fmt.Errorf("guard manager: a Space is missing: %w", holdfast.ErrInvalid)
	}
	info := c.Space.Info().Features
	for _, f := range []driver.Feature{driver.FeatureSession, driver.FeatureWatch, driver.FeatureTxn} {
		if !info[f] {
			return nil, fmt.Errorf("guard manager: the backend lacks %q: %w", f, errors.ErrUnsupported)
		}
	}
	m := &Manager{
		space: c.Space, gatherer: c.Gatherer, keep: c.KeepStale, reclaims: info[driver.FeatureReclaim], forces: info[driver.FeatureForce],
		interval: cmp.Or(max(c.Interval, 0), DefaultInterval), recheck: c.Recheck,
		locks: map[string]*resource{}, semaphores: map[string]*resource{}, guards: map[string]*watched{},
		telling: make(chan struct{}, 1),
	}
	if m.gatherer == nil {
		m.gatherer = gather.New(gather.Config{Space: c.Space})
	}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	return m, nil
}

// Close ends the guards, with their events, and gives everything back, also what is being
// acquired, of which the callers get ErrClosed, and what stale holders have left, which
// takes at most ten seconds. Close it before its Space.
func (m *Manager) Close() error {
	m.mu.Lock() // what has begun is waited for
	m.cancel(errClosed)
	m.mu.Unlock()
	m.all.Wait()
	m.mu.Lock()
	var list []held
	for _, r := range m.resources() {
		for _, h := range r.holders {
			list = append(list, held{r, h})
		}
		clear(r.holders)
	}
	m.mu.Unlock()
	return errors.Join(endOf(m.session), m.endAll(list))
}

// endAll gives some back at a time: one after the other many would take too long.
func (m *Manager) endAll(list []held) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	errs, places := make([]error, len(list)), make(chan struct{}, 32)
	var all sync.WaitGroup
	for i, one := range list {
		places <- struct{}{}
		all.Go(func() {
			errs[i] = m.giveBack(ctx, one)
			<-places
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// resources are all there are; m is locked.
func (m *Manager) resources() []*resource {
	return slices.Concat(slices.Collect(maps.Values(m.locks)), slices.Collect(maps.Values(m.semaphores)))
}

// end ends the session, and with it the hold; one that is lost already has ended.
func (h *holder) end() error { return endOf(h.session) }

func endOf(s *holdfast.Session) error {
	if err := s.Revoke(); err != nil && !errors.Is(err, holdfast.ErrLost) {
		return err
	}
	return nil
}

// LockConfig is that of a lock.
type LockConfig struct {
	Name string
	// StaleThreshold is how long a holder may be silent, within the bounds of [holdfast.TTL]; default
	// 60 s. Backends without the feature "reclaim" refuse one.
	StaleThreshold time.Duration
	// Heartbeat is how often a holder should say that it is there; default 15 s. It is
	// told to holders and decides nothing.
	Heartbeat time.Duration
}

// SemaphoreConfig is that of a semaphore.
type SemaphoreConfig struct {
	Name           string
	MaxSlots       int64
	StaleThreshold time.Duration
	Heartbeat      time.Duration
}

// EnsureLock makes the lock known; one that is known stays as it is. What could never be acquired, by its name or
// its threshold, is refused, and a name that a semaphore of the manager has.
func (m *Manager) EnsureLock(c LockConfig) error {
	return m.ensure(m.locks, resource{name: c.Name, threshold: c.StaleThreshold, heartbeat: c.Heartbeat})
}

// EnsureSemaphore makes the semaphore known; one that is known stays as it is, and another
// number of slots is refused, and a name that a lock of the manager has.
func (m *Manager) EnsureSemaphore(c SemaphoreConfig) error {
	if c.MaxSlots < 1 {
		return fmt.Errorf("guard manager: the semaphore %q has %d slots: give 1 or more: %w", c.Name, c.MaxSlots, holdfast.ErrInvalid)
	}
	return m.ensure(m.semaphores, resource{name: c.Name, slots: c.MaxSlots, threshold: c.StaleThreshold, heartbeat: c.Heartbeat})
}

func (m *Manager) ensure(list map[string]*resource, r resource) error {
	if err := m.settle(&r); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return fmt.Errorf("guard manager: %q: %w", r.name, errClosed)
	}
	if err := m.clash(&r); err != nil {
		return fmt.Errorf("guard manager: %q: %w", r.name, err)
	}
	if list[r.name] == nil {
		r.holders = map[string]*holder{}
		list[r.name] = &r
	}
	return nil
}

// clash: what is known by the name is another kind, or has other slots. m is locked.
func (m *Manager) clash(r *resource) error {
	for _, list := range m.lists() {
		known := list[r.name]
		switch {
		case known == nil || known.slots == r.slots:
		case known.slots == 0:
			return fmt.Errorf("it is a lock here, and no semaphore: %w", holdfast.ErrConflict)
		case r.slots == 0:
			return fmt.Errorf("it is a semaphore here, and no lock: %w", holdfast.ErrConflict)
		default:
			return fmt.Errorf("the semaphore has %d slots here, not %d: %w", known.slots, r.slots, holdfast.ErrConflict)
		}
	}
	return nil
}

// settle fills in the defaults, and refuses what makes no sense.
func (m *Manager) settle(r *resource) error {
	switch {
	case r.name == "":
		return fmt.Errorf("guard manager: the name is empty: %w", holdfast.ErrInvalid)
	case r.threshold < 0 || r.heartbeat < 0 || r.threshold > 0 && r.heartbeat > r.threshold:
		return fmt.Errorf("guard manager: %q: a threshold of %s with a heartbeat each %s makes no sense: %w", r.name, r.threshold, r.heartbeat, holdfast.ErrInvalid)
	case r.threshold > 0 && !m.reclaims:
		return fmt.Errorf("guard manager: %q: the backend knows no stale holders: leave the threshold out: %w", r.name, errors.ErrUnsupported)
	}
	if m.reclaims {
		r.threshold = cmp.Or(r.threshold, DefaultStaleThreshold)
	}
	r.heartbeat = cmp.Or(r.heartbeat, DefaultHeartbeat)
	if r.threshold > 0 {
		r.heartbeat = min(r.heartbeat, r.threshold/4)
	}
	return m.possible(r)
}

// possible asks the Space whether it would take the name, the slots and the threshold. It says so before it looks at
// the context, which has ended: the backend is not asked.
func (m *Manager) possible(r *resource) error {
	var opts []holdfast.HoldOption
	if r.threshold > 0 {
		opts = append(opts, holdfast.TTL(r.threshold))
	}
	var err error
	if r.slots > 0 {
		_, err = m.space.Semaphore(r.name, r.slots, opts...).TryAcquire(ended(), 1)
	} else {
		_, err = m.space.Mutex(r.name, opts...).TryAcquire(ended())
	}
	if errors.Is(err, fs.ErrInvalid) {
		return fmt.Errorf("guard manager: it could never be acquired: %w", err)
	}
	return nil
}

// ended is the context of a call that is to say what it knows before it asks the backend.
func ended() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}

// Lock is a lock as the manager knows it.
type Lock struct {
	LockConfig
	Holder *Holder // nil: none of this manager
}

// Semaphore is a semaphore as the manager knows it.
type Semaphore struct {
	SemaphoreConfig
	Holders []Holder // of this manager, in order of their tokens
}

// Used is how many slots the holders have, never more than there are: stale ones have lost theirs, which
// another may have by now.
func (s *Semaphore) Used() (n int64) {
	for _, h := range s.Holders {
		if !h.Stale {
			n += h.Weight
		}
	}
	return n
}

// Holder is one holder.
type Holder struct {
	ID       string
	Metadata string
	Weight   int64
	Token    holdfast.Token
	// LastHeartbeat is when the holder was last heard of.
	LastHeartbeat time.Time
	// Stale: it was silent for too long, and has lost what it held, which is a little before
	// the threshold is over.
	Stale bool
}

// GetLock tells of a lock; false: it was not ensured.
func (m *Manager) GetLock(name string) (Lock, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.locks[name]
	if r == nil {
		return Lock{}, false
	}
	l := Lock{LockConfig: LockConfig{r.name, r.threshold, r.heartbeat}}
	if list := r.list(); len(list) > 0 {
		l.Holder = &list[len(list)-1]
	}
	return l, true
}

// GetSemaphore tells of a semaphore; false: it was not ensured.
func (m *Manager) GetSemaphore(name string) (Semaphore, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.semaphores[name]
	if r == nil {
		return Semaphore{}, false
	}
	return Semaphore{SemaphoreConfig{r.name, r.slots, r.threshold, r.heartbeat}, r.list()}, true
}

// list are those that were granted, in order of their tokens, without holds that were ended
// alone; m is locked.
func (r *resource) list() (list []Holder) {
	for _, h := range r.holders {
		if h.hold != nil && !h.endedAlone() {
			list = append(list, Holder{h.name, h.metadata, h.weight, h.hold.Token(), h.last, h.over() != nil})
		}
	}
	slices.SortFunc(list, func(a, b Holder) int { return cmp.Compare(a.Token, b.Token) })
	return list
}

// LockNames are the locks, in order.
func (m *Manager) LockNames() []string { return m.names(m.locks) }

// SemaphoreNames are the semaphores, in order.
func (m *Manager) SemaphoreNames() []string { return m.names(m.semaphores) }

func (m *Manager) names(list map[string]*resource) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(list))
}
