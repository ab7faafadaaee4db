package core

// EventKind is what an event is about.
type EventKind uint8

// The kinds; String gives the name that patterns use.
const (
	EventLock EventKind = 1 + iota
	EventRWLock
	EventSemaphore
	EventElection
	EventLatch
	EventBarrier
	EventSession
	EventCounter
	EventSequence
	EventKV
	EventLimit
)

func (k EventKind) String() string {
	return name(k, "", "lock", "rwlock", "semaphore", "election", "latch", "barrier", "session", "counter", "sequence", "kv", "limit")
}

// Verb is what happened.
type Verb uint8

// The verbs. Which fields of the Event they fill is in docs/events.md.
const (
	VerbAcquired   Verb = 1 + iota // a claim was granted
	VerbReleased                   // a claim was given back
	VerbDenied                     // a try, or a wait that ended without a grant; Reason says why
	VerbQueued                     // a claim waits
	VerbStale                      // a session's deadline passed, once each claim; takes no revision
	VerbReclaimed                  // a stale claim was taken for another
	VerbRevoked                    // a claim's end was decided by another
	VerbExpired                    // a claim ended by its own deadline or with its session; a session or key ended by its deadline
	VerbUpgraded                   // shared became exclusive; a new token
	VerbDowngraded                 // exclusive became shared; the token stays
	VerbExtended                   // the max-hold deadline moved
	VerbProclaimed                 // a leader's value changed
	VerbResized                    // a semaphore's limit changed
	VerbDeleted                    // an object was removed
	VerbOpened                     // a session was opened; a latch reached zero
	VerbEnded                      // a session that asked for its end
	VerbCounted                    // a latch was counted down
	VerbTripped                    // a barrier's parties were all there
	VerbChanged                    // a counter changed; a limiter's rate was set, a key of it reset, or it was deleted
	VerbReserved                   // numbers of a sequence were taken
	VerbPut                        // a key was written
	VerbDelete                     // a key was removed, as asked, by expiry or with its session; Reason says which
)

func (v Verb) String() string {
	return name(v, "", "acquired", "released", "denied", "queued", "stale", "reclaimed", "revoked", "expired",
		"upgraded", "downgraded", "extended", "proclaimed", "resized", "deleted", "opened", "ended",
		"counted", "tripped", "changed", "reserved", "put", "delete")
}

func name[T ~uint8](i T, names ...string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return "unknown"
}

// Event is something that happened, at (Revision, Ordinal); events come in that
// order, with ordinals counted from 0 within a revision.
type Event struct {
	Revision  uint64
	Ordinal   uint32
	Kind      EventKind
	Verb      Verb
	Namespace string
	Name      string // of the resource or key; "" for a session
	Session   SessionID
	Owner     string
	Token     uint64
	Mode      Mode
	Version   uint32 // of a hold: 1 at its grant, then counted up; an end does not count
	Weight    int64
	Value     []byte // of a hold: its metadata, of an election the value proclaimed
	Modified  uint64 // of a hold: the revision of its last change; an end is none
	Reason    Code   // why, where there are several ways
	Number    uint64 // counter: its value; sequence: its next; latch: what is left; resized: the limit; barrier: the parties
	// KeyChange is that of a key event; nil for all others, which are many more
	// and need not carry its size along.
	*KeyChange
}

// KeyChange is what happened to a key.
type KeyChange struct {
	Key  Key // as it is now, or was at its end
	Prev Key // as it was before; Version 0: absent
}
