package driver

// WatchRequest asks for events.
type WatchRequest struct {
	Prefix string // names and keys that begin with it; "" is everything
	// Exact: only the name that equals Prefix.
	Exact bool
	// From is the first revision wanted; 0: from now on.
	From Revision
	// Patterns are kind:verb with * for either; none: everything.
	Patterns []string
	// Glob also has to match the name, as path.Match does; "": everything.
	Glob string
	// Previous asks for what was there before, on key events.
	Previous bool
	_        struct{}
}

// The kinds and verbs that only a watch itself emits.
const (
	WatchKind  = "watch"
	VerbReady  = "ready"  // first event: everything from Revision on will follow
	VerbResync = "resync" // events were left out: read the state anew, then go on from Revision
)

// Event is something that happened, at (Revision, Ordinal), in that order.
type Event struct {
	Revision Revision
	Ordinal  uint32
	// Kind is lock, rwlock, semaphore, election, latch, barrier, session,
	// counter, sequence, limit or kv; also watch.
	Kind string
	// Verb is acquired, released, denied, stale, reclaimed, revoked, put, …
	Verb string
	Name string // of the resource or key; of a session its id
	// Token, Owner, Mode, Weight, Session, Value and Reason are of the claim.
	Token   Token
	Owner   string
	Mode    Mode
	Weight  int64
	Session SessionID
	Value   []byte
	Reason  string
	// Number is a counter's value (int64(Number) of a signed one), a sequence's next
	// number, what is left of a latch, or a semaphore's new limit.
	Number uint64
	KV     *KV // key events: now, or at its end; for put and delete
	Prev   *KV // key events, if asked for
}

// String is the event as patterns see it: kind:verb.
func (e *Event) String() string { return e.Kind + ":" + e.Verb }
