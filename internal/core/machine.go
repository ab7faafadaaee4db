package core

import (
	"fmt"
	"math"
)

// Machine is the whole state of one group. It is not safe for concurrent use:
// its owner applies entries, reads and steps views one after the other.
type Machine struct {
	cfg      Config
	now      int64
	revision uint64 // of the last change
	ordinal  uint32 // of the next event at that revision
	serial   uint64 // orders arrivals
	hash     uint64
	frozen   bool
	version  uint8
	early    bool // the entry that is being applied is of version 1

	sessions  slab[session, *session]
	resources slab[resource, *resource]
	claims    slab[claim, *claim]
	dones     slab[done, *done]
	keys      slab[key, *key]
	endeds    slab[ended, *ended]
	usages    slab[usage, *usage]

	spaces   map[string]*namespace
	byID     map[SessionID]*session
	endedIDs map[SessionID]*ended
	// The greatest lengths of byID and endedIDs.
	mostSessions, mostEnded int

	recent recentTerms
	spare  dataPool

	sessionDue heap[*session]
	claimDue   heap[*claim]
	keyDue     heap[*key]
	usageDue   heap[*usage]

	left      tree[uint64, *limiter] // limiters that nobody can ask, with keys to be dropped
	limiters  uint64                 // how many rates were ever set
	limitKeys int                    // quota
	date      int64                  // Unix time less cluster time, in nanoseconds
	dated     bool                   // and it is known

	backlog  []job           // work of sessions, in order
	behind   int             // jobs that are done
	budget   int             // sessions, claims and keys that this entry may still end
	deletes  int             // keys that it may still delete by prefix
	serves   int             // steps in which it may still grant to waiters
	drops    int             // keys of limiters that it may still drop
	walks    int             // claims of which it may still see whether others wait for them
	dirty    heap[*resource] // to be served, by name
	idle     idleList
	queues   []*queue // spare
	current  *claim   // of the command that is being run
	made     bool     // and it is the command's record
	wants    []Want
	found    []*resource // what the wants of the command are now
	traces   []*resource // and what is remembered of them
	epoch    uint32
	views    []*View
	out      *Output
	scratch  Output
	entry    Entry
	frames   []Frame
	encoding []byte
}

// New returns an empty machine.
func New(c Config) *Machine {
	m := &Machine{
		cfg:      c.withDefaults(),
		spaces:   map[string]*namespace{},
		byID:     map[SessionID]*session{},
		endedIDs: map[SessionID]*ended{},
	}
	m.revision, m.version, m.limitKeys = m.cfg.Revision-1, BaseVersion, math.MaxInt
	return m
}

// Now is cluster time, in nanoseconds: the greatest that an entry brought.
func (m *Machine) Now() int64 { return m.now }

// Revision is that of the last change.
func (m *Machine) Revision() uint64 { return m.revision }

// Ordinal is that of the next event at this revision: of a denial, which changes
// nothing.
func (m *Machine) Ordinal() uint32 { return m.ordinal }

// Raise moves the revision to at least r, for an engine that has tokens of its own
// beside the machine's: names that were granted by those can then be the
// machine's. A caller that applies a log has to raise at the same place in it.
func (m *Machine) Raise(r uint64) { m.revision = max(m.revision, r) }

// Frozen reports whether nothing is granted: see EntryFreeze.
func (m *Machine) Frozen() bool { return m.frozen }

// Hash is a running hash of everything that was put out. Machines that applied
// the same entries have the same; it cannot tell what they would answer next.
func (m *Machine) Hash() uint64 { return m.hash }

// Apply applies one encoded entry and appends what it puts out to out, which
// may be nil. A malformed entry is an error and changes nothing.
func (m *Machine) Apply(entry []byte, out *Output) error {
	if err := m.decode(entry); err != nil {
		return err
	}
	if m.out = out; out == nil {
		m.scratch.Reset()
		m.out = &m.scratch
	}
	from := m.out.lengths()
	m.now, m.early, m.version = max(m.now, m.entry.Now), m.entry.Version == 1, max(m.version, m.entry.Version)
	m.budget, m.deletes, m.serves, m.walks, m.drops = m.cfg.Budget, m.cfg.Budget, m.cfg.Budget, m.cfg.Budget, m.cfg.Budget
	if m.early {
		m.walks = maxWalk
	}
	switch m.entry.Kind {
	case EntryForget:
		m.forget(uint64(max(m.entry.Seconds, 0)) << 20)
	case EntryFreeze:
		m.frozen = true
	case EntryUnfreeze:
		m.frozen = false
		m.settle()
	case EntryQuota:
		m.setQuota(m.entry.Quota)
	case EntryRaise:
		if r := m.entry.Revision; r > m.revision {
			m.revision, m.ordinal = r, 0
		}
	default:
		m.run()
	}
	m.pass()
	m.hashOutput(from)
	m.out, m.early = nil, false
	return nil
}

// decode decodes the entry and all its frames, so that nothing is applied of
// what cannot be applied as a whole.
func (m *Machine) decode(entry []byte) error {
	if err := DecodeEntry(entry, &m.entry); err != nil {
		return err
	}
	for i := range m.frames { // those that this entry does not use again as well
		m.frames[i].trim()
	}
	m.frames = m.frames[:0]
	for _, b := range m.entry.Frames {
		m.frames = grow(m.frames)
		f := &m.frames[len(m.frames)-1]
		if err := DecodeFrame(b, f); err != nil {
			return err
		}
		if needs := f.Since(); needs > m.entry.Version {
			return fmt.Errorf("%w: a command of version %d in an entry of version %d", ErrFrame, needs, m.entry.Version)
		}
	}
	return nil
}

func (m *Machine) run() {
	if m.entry.Seconds != 0 {
		m.date, m.dated = m.entry.Seconds*second-m.now, true
	}
	for i := range m.entry.Renewals {
		m.renew(&m.entry.Renewals[i])
	}
	m.settle() // what the entry before had no steps left for
	for i := range m.frames {
		m.frame(&m.frames[i])
	}
}

// next takes the revision of a change.
func (m *Machine) next() uint64 {
	m.revision++
	m.ordinal = 0
	return m.revision
}

func (m *Machine) arrival() uint64 {
	m.serial++
	return m.serial
}

// space returns the namespace of that name, made if need be.
func (m *Machine) space(name string) *namespace {
	if name == "" {
		name = "default"
	}
	ns := m.spaces[name]
	if ns == nil {
		ns = &namespace{name: string([]byte(name)), names: map[string]*resource{}, keys: map[string]*key{}}
		m.spaces[ns.name] = ns
	}
	return ns
}

// known returns the namespace if it was ever used.
func (m *Machine) known(name string) *namespace {
	if name == "" {
		name = "default"
	}
	return m.spaces[name]
}
