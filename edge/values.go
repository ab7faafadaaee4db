package edge

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/crdt"
)

// The bounds of sets and registers: each travels as a whole.
const (
	// MaxValues bounds the sets and registers of a node, those of the others included.
	MaxValues = 10_000
	// MaxSetBytes bounds a set as it is sent, in bytes: each element with the name of
	// the node that added it, and all nodes that ever did: names that are never used again,
	// as a pod's uid, fill it for good. Nodes that add while they
	// cannot hear each other can exceed it together; a link that takes no message so large
	// carries all but that set then.
	MaxSetBytes = 256 << 10
	// MaxRegister bounds the value of a register, in bytes.
	MaxRegister = 64 << 10
	// maxSkew is how far ahead the clock of another may be for its writes to count.
	maxSkew = time.Minute
)

// value is a set or a register.
type value interface {
	label() (section byte, name string)
	delta() []byte // what has changed since the last time
	state() []byte // all
	again()        // what was sent last has not arrived
	relieved(*view) bool
}

// values are the sets and registers of a node.
type values struct {
	mu    sync.Mutex
	sets  map[string]*Set
	regs  map[string]*Register
	all   []value
	dirty []value
	clock crdt.Clock // of registers
}

// shared is what sets and registers have in common.
type shared struct {
	node     *Node
	name     string
	marked   atomic.Bool // in values.dirty
	watchers watchers
}

func (s *shared) mark(v value) {
	if s.marked.Swap(true) {
		return
	}
	s.node.values.mu.Lock()
	defer s.node.values.mu.Unlock()
	s.node.values.dirty = append(s.node.values.dirty, v)
}

// Watch has changes receive after a change, by this node or another: once for all
// changes since the last receive. stop ends it.
func (s *shared) Watch() (changes <-chan struct{}, stop func()) { return s.watchers.add() }

// Name is what it was opened by.
func (s *shared) Name() string { return s.name }

func (vs *values) takeDirty() []value {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	list := vs.dirty
	vs.dirty = nil
	return list
}

// addState adds all that has to be told.
func (vs *values) addState(b *batch) {
	vs.mu.Lock()
	all := vs.all
	vs.mu.Unlock()
	for _, v := range all {
		if !v.relieved(b.view) {
			b.addValue(v, v.state())
		}
	}
}

// merge joins what another node knows. v is for a state that can relieve; nil: none.
func (vs *values) merge(n *Node, s *valueSection, v *view) {
	if s.kind == sectionSet {
		if set := vs.set(n, s.name); set != nil {
			set.merge(s.set, v)
		}
		return
	}
	_, stamp := s.reg.Value()
	vs.mu.Lock()
	err := vs.clock.Observe(stamp.At, n.config.Now(), maxSkew)
	vs.mu.Unlock()
	if err != nil {
		n.tally.skewed.Add(1)
		return
	}
	if r := vs.register(n, s.name); r != nil {
		r.merge(s.reg, v)
	}
}

// set is nil if there is no room.
func (vs *values) set(n *Node, name string) *Set {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	s := vs.sets[name]
	if s == nil && vs.room(n) {
		s = &Set{shared: shared{node: n, name: name}}
		if vs.sets == nil {
			vs.sets = map[string]*Set{}
		}
		vs.sets[name] = s
		vs.all = append(vs.all, s)
	}
	return s
}

// register is nil if there is no room.
func (vs *values) register(n *Node, name string) *Register {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	r := vs.regs[name]
	if r == nil && vs.room(n) {
		r = &Register{shared: shared{node: n, name: name}}
		if vs.regs == nil {
			vs.regs = map[string]*Register{}
		}
		vs.regs[name] = r
		vs.all = append(vs.all, r)
	}
	return r
}

func (vs *values) room(n *Node) bool {
	if len(vs.all) < MaxValues {
		return true
	}
	n.tally.full.Add(1)
	return false
}

func noRoom(what, name string) error {
	return fmt.Errorf("edge: %s %q: the node has %d sets and registers, the most it may have: %w", what, name, MaxValues, ErrFull)
}

// Set is a set of texts that all nodes add to and remove from: of an addition and a
// removal at the same time the addition wins.
type Set struct {
	shared
	mu sync.Mutex
	relief
	known crdt.ORSet
	fail  bool // the next delta is everything
	news  crdt.ORSet
	size  int  // of its encoding, at most, unless stale
	stale bool // others have changed it
}

// Set is the set of that name, the same on every node.
func (n *Node) Set(name string) (*Set, error) {
	if err := checkName("name of a set", name); err != nil {
		return nil, err
	}
	if s := n.values.set(n, name); s != nil {
		return s, nil
	}
	return nil, noRoom("set", name)
}

// Add adds an element of 1 to [MaxName] bytes.
func (s *Set) Add(element string) error {
	if err := checkName("element of a set", element); err != nil {
		return err
	}
	s.mu.Lock()
	if !s.fits(element) {
		s.mu.Unlock()
		return fmt.Errorf("edge: set %q: it would be larger than %d bytes, with the names of the nodes that added its elements: %w", s.name, MaxSetBytes, ErrFull)
	}
	d := s.known.Add(s.node.me, element)
	if !d.Has(element) {
		s.mu.Unlock()
		return fmt.Errorf("edge: set %q: the numbers of this node's additions are used up, as by a forged message; open it anew, as its next incarnation: %w", s.name, ErrFull)
	}
	s.changed(d)
	s.mu.Unlock()
	s.mark(s)
	s.watchers.tell()
	return nil
}

// Remove removes an element, if it is there.
func (s *Set) Remove(element string) {
	s.mu.Lock()
	if !s.known.Has(element) {
		s.mu.Unlock()
		return
	}
	s.size += s.room(0)
	s.changed(s.known.Remove(s.node.me, element))
	s.mu.Unlock()
	s.mark(s)
	s.watchers.tell()
}

// changed notes what this node has changed for the next flush, if there is to be one; mu is
// held.
func (s *Set) changed(d crdt.ORSet) {
	if !s.node.told.Load() {
		s.news.Merge(d)
	}
	s.relief = relief{}
}

// fits reports that there is room for an element, and takes it; mu is held. What is
// removed is found out when the room seems to be used up.
func (s *Set) fits(element string) bool {
	more := s.room(len(element))
	if s.stale || s.size+more > MaxSetBytes {
		s.size, s.stale = len(s.known.Append(nil)), false
	}
	if s.size+more > MaxSetBytes {
		return false
	}
	s.size += more
	return true
}

// room is what one change of this node takes at most.
func (s *Set) room(element int) int { return element + len(s.node.me.Node) + 4*binary.MaxVarintLen64 }

// Version is what this node knows of the set, as a text to hand to another: a caller that
// has read here reads nothing older there, neither what was removed nor without what was added,
// after Await. It is about as long as the names of all nodes that ever changed the set.
func (s *Set) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return base64.RawURLEncoding.EncodeToString(s.known.AppendVersion(nil))
}

// Await waits until this node knows all that the version tells, or ctx ends.
func (s *Set) Await(ctx context.Context, version string) error {
	text, err := base64.RawURLEncoding.DecodeString(version)
	if err == nil {
		_, err = s.reached(text)
	}
	if err != nil {
		return invalid("set %q: the version is none", s.name)
	}
	return s.watchers.await(ctx, func() bool {
		ok, _ := s.reached(text)
		return ok
	})
}

func (s *Set) reached(version []byte) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.Reached(version)
}

// Has reports that the element is in the set, as far as it is known here.
func (s *Set) Has(element string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.Has(element)
}

// Elements are all, in order.
func (s *Set) Elements() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.Elements()
}

func (s *Set) merge(o crdt.ORSet, v *view) {
	s.mu.Lock()
	changed := s.known.Merge(o)
	s.stale = s.stale || changed
	if v != nil {
		v.judge(&s.relief, !o.Merge(s.known))
	}
	s.mu.Unlock()
	if changed {
		s.watchers.tell()
	}
}

func (s *Set) relieved(v *view) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return v.relieves(s.relief)
}

func (s *Set) label() (byte, string) { return sectionSet, s.name }

func (s *Set) delta() []byte {
	s.marked.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &s.news
	if s.fail {
		d = &s.known
	}
	text := d.Append(nil)
	s.news, s.fail = crdt.ORSet{}, false
	return text
}

func (s *Set) state() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.Append(nil)
}

func (s *Set) again() {
	s.mu.Lock()
	s.fail = true
	s.mu.Unlock()
	s.mark(s)
}

// Register is a value that all nodes write: the last write wins.
type Register struct {
	shared
	mu sync.Mutex
	relief
	known crdt.Register
}

// Register is the register of that name, the same on every node.
func (n *Node) Register(name string) (*Register, error) {
	if err := checkName("name of a register", name); err != nil {
		return nil, err
	}
	if r := n.values.register(n, name); r != nil {
		return r, nil
	}
	return nil, noRoom("register", name)
}

// Store writes a value of at most [MaxRegister] bytes. It is later than every write
// that this node knows of, also if its clock was set back since; unless its clock was more than a
// minute ahead: others ignore what it wrote then, and it does too once the clock is right.
func (r *Register) Store(v []byte) error {
	if len(v) > MaxRegister {
		return invalid("register %q: the value has %d bytes; it may have %d", r.name, len(v), MaxRegister)
	}
	now := r.node.config.Now()
	behind := r.node.behind(now)
	at := r.node.values.next(now, behind)
	r.mu.Lock()
	r.unbelieve(now, behind)
	r.known.Set(v, crdt.Stamp{At: at, Actor: r.node.me})
	r.relief = relief{}
	r.mu.Unlock()
	r.mark(r)
	r.watchers.tell()
	return nil
}

// behind reports that the clock of this node is far behind those of most others. If it is not, a
// write that is far ahead of it is of a time when it was wrong.
func (n *Node) behind(now time.Time) bool {
	return n.peers.ahead(now, absence*n.config.State, maxSkew)
}

// next is the time of a write. A clock that has been far ahead begins again at the wall:
// the others would not believe it.
func (vs *values) next(now time.Time, behind bool) crdt.Time {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	at := vs.clock.Next(now)
	if at.Wall().Sub(now) > maxSkew && !behind {
		vs.clock = crdt.Clock{}
		at = vs.clock.Next(now)
	}
	return at
}

// unbelieve drops a write of this node's own clock when it was far ahead, which no other
// node has taken; mu is held.
func (r *Register) unbelieve(now time.Time, behind bool) {
	if _, stamp := r.known.Value(); stamp.At.Wall().Sub(now) > maxSkew && !behind {
		r.known = crdt.Register{}
	}
}

// Load is the last write that this node knows of; nil if there was none.
func (r *Register) Load() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, _ := r.known.Value()
	return slices.Clone(v)
}

// Version is which write this node has, as a text to hand to another: a caller that
// has read here reads nothing older there after Await.
func (r *Register) Version() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, stamp := r.known.Value()
	var mark crdt.Register
	mark.Set(nil, stamp)
	return base64.RawURLEncoding.EncodeToString(mark.Append(nil))
}

// Await waits until this node has the write that the version tells, or a later one,
// or ctx ends.
func (r *Register) Await(ctx context.Context, version string) error {
	text, err := base64.RawURLEncoding.DecodeString(version)
	var want crdt.Register
	if err != nil || want.Decode(text) != nil {
		return invalid("register %q: the version is none", r.name)
	}
	_, at := want.Value()
	return r.watchers.await(ctx, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		_, stamp := r.known.Value()
		return stamp.Compare(at) >= 0
	})
}

func (r *Register) merge(o crdt.Register, v *view) {
	now := r.node.config.Now()
	behind := r.node.behind(now)
	r.mu.Lock()
	r.unbelieve(now, behind)
	changed := r.known.Merge(o)
	if v != nil {
		v.judge(&r.relief, !o.Merge(r.known))
	}
	r.mu.Unlock()
	if changed {
		r.watchers.tell()
	}
}

func (r *Register) relieved(v *view) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return v.relieves(r.relief)
}

func (r *Register) label() (byte, string) { return sectionRegister, r.name }

func (r *Register) delta() []byte {
	r.marked.Store(false)
	return r.state()
}

func (r *Register) state() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known.Append(nil)
}

func (r *Register) again() { r.mark(r) }
