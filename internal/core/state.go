package core

// namespace is what names, quotas and rights belong to.
type namespace struct {
	name     string
	names    map[string]*resource
	order    tree[string, *resource]
	keys     map[string]*key
	keyOrder tree[string, *key]
	sessions int
	inUse    int // names that are not idle
	ended    endedList
	// limitKeys is how many keys its limiters remember.
	limitKeys int
	// The greatest lengths of names and keys.
	mostNames, mostKeys int
}

// resource is a name: something to hold, a counter, a sequence or a limiter.
type resource struct {
	node
	kind     Kind
	unsigned bool  // counter
	idle     bool  // free, and only remembered
	heapPos  int32 // among those that wait to be served, in this entry or, if it is told so, in the next
	ns       *namespace
	name     string
	limit    int64  // capacity; latch: first count; barrier: parties
	used     int64  // of the capacity
	number   uint64 // counter: value; sequence: next; latch: what is left
	created  uint64
	modified uint64
	version  uint64
	holders  partList // in order of token
	crowd    *crowd   // nil: few, and nobody is late
	queue    *queue   // nil: nobody waits
	nextIdle *resource
	prevIdle *resource
	limiter  *limiter // of a limiter
}

func (r *resource) id() string  { return r.name }
func (r *resource) pos() *int32 { return &r.heapPos }
func (r *resource) dirty() bool { return r.heapPos != 0 }
func (r *resource) before(o *resource) bool {
	if r.ns != o.ns {
		return r.ns.name < o.ns.name
	}
	return r.name < o.name
}

// queue is what waits for a resource.
type queue struct {
	order    waitList      // by arrival; the first that does not fit stops all
	later    waitList      // parts of claims that wait for an earlier name
	set      waitList      // parts of claims that have this name reserved
	reserved int64         // what they take of the capacity
	upgrade  *claim        // waits before the queue
	weights  map[int64]int // how many in order, later and set have a weight above 1; nil: none
}

func (l *queue) waiting() int {
	n := l.order.n + l.later.n + l.set.n
	if l.upgrade != nil {
		n++
	}
	return n
}

// queuePlace is where a part is listed.
type queuePlace uint8

const (
	nowhere queuePlace = iota
	inQueue
	inLater
	inSet
	inHolders
	inUpgrade
)

// part is one name of a claim.
type part struct {
	r          *resource
	c          *claim
	prev, next *part
	weight     int64
	mode       Mode
	place      queuePlace
	late       bool // it is among the late holders
}

// takes is what the part takes of the capacity.
func (p *part) takes() int64 { return p.r.takes(p.mode, p.weight) }

func (r *resource) takes(mode Mode, weight int64) int64 {
	switch {
	case r.kind == Latch || r.kind == Barrier:
		return 0
	case mode == Exclusive:
		return r.limit
	}
	return weight
}

// state is what a claim is.
type state uint8

const (
	waiting state = 1 + iota
	granted
	revoked
	over // the shared claim of a granted upgrade: back if that is cancelled
)

// reason says what a claim's deadline is for.
type reason uint8

const (
	noDeadline reason = iota
	endWait
	endMaxHold
	endRevoked
	endLinger // nobody's any more: min-hold or delay
)

// claim is a request to hold, waiting or granted as a whole.
type claim struct {
	node
	state    state
	reason   reason
	version  uint32
	heapPos  int32
	s        *session // nil: it outlives its session
	seq      uint64
	arrival  uint64
	token    uint64
	created  uint64 // revision at which it was queued, then granted
	modified uint64
	since    int64 // cluster time of the grant, or of joining the queue
	deadline int64
	prev     *claim // in the session, by seq
	next     *claim
	twin     *claim // the upgrade of a shared claim and the other way round
	rare     *claimOptions
	one      [1]part
	many     *several // if it is on several names
}

// claimOptions is what few claims have.
type claimOptions struct {
	maxHold, minHold, delay int64
	value                   []byte
	owner                   string // "": that of its session
}

// several are the names of a claim that has more than one.
type several struct {
	parts []part // by name
	at    int    // the first that is not reserved
}

// parts are the claim's names in order.
func (c *claim) parts() []part {
	if c.many != nil {
		return c.many.parts
	}
	return c.one[:]
}

func (c *claim) id() uint64           { return c.seq }
func (c *claim) pos() *int32          { return &c.heapPos }
func (c *claim) before(o *claim) bool { return c.arrival < o.arrival }

// owner names the holder or waiter for people; c has a session.
func (c *claim) owner() string {
	if c.rare != nil && c.rare.owner != "" {
		return c.rare.owner
	}
	return c.s.owner
}

// ownDeadline is what its holder is told: not that of a wait.
func (c *claim) ownDeadline() int64 {
	if c.state == waiting {
		return 0
	}
	return c.deadline
}

// done is the kept result of a command, or what became of a claim.
type done struct {
	node
	code     Code
	ok       bool
	gone     bool // of a claim
	s        *session
	seq      uint64
	revision uint64
	token    uint64
	deadline int64
	number   uint64
	rest     []byte // the whole result, encoded, if the fields do not do
}

// life is how far a session is.
type life uint8

const (
	alive  life = iota
	stale       // its deadline has passed, and its policy keeps its claims
	lapsed      // and its grace has passed
	ending      // its end is applied as far as the budget allows
)

// work is what is still to be done for a session, claim by claim.
type work uint8

const (
	noWork   work = iota
	telling       // that its holder is late
	yielding      // its claims to their waiters
	revoking      // its claims
	freeing       // all that it has
)

// session is liveness: everything held or awaited hangs on one.
type session struct {
	node
	life    life
	work    work
	revoked bool // ended by another: no renewal counts
	atOnce  bool // and without waiting for its holder to know
	asked   bool // that asked for its end
	told    bool // that its claims are stale
	heapPos int32
	*terms
	id       SessionID
	deadline int64
	due      int64 // when time alone does something to it; never before what the heap has
	mark     uint64
	opened   uint64
	openedAt int64
	order    uint64       // of its work
	has      *sessionData // nil: nothing
}

func (s *session) pos() *int32 { return &s.heapPos }
func (s *session) before(o *session) bool {
	return string(s.id[:]) < string(o.id[:])
}

// key is one key of the store.
type key struct {
	node
	heapPos  int32
	ns       *namespace
	name     string
	value    []byte
	created  uint64
	modified uint64
	version  uint64
	session  *session
	deadline int64
}

func (k *key) id() string  { return k.name }
func (k *key) pos() *int32 { return &k.heapPos }
func (k *key) before(o *key) bool {
	if k.ns != o.ns {
		return k.ns.name < o.ns.name
	}
	return k.name < o.name
}

// ended is the id of a session that must not come back.
type ended struct {
	node
	id    SessionID
	ns    *namespace
	at    int64
	order uint64
	next  *ended
}

// endedList is a namespace's ended ids, oldest first.
type endedList struct {
	first, last *ended
	n           int
}
