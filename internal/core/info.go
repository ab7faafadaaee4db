package core

// SessionInfo is a session as the machine has it, with every field of its
// record.
type SessionInfo struct {
	ID        SessionID
	Namespace string
	Identity  string
	Owner     string
	Meta      string
	TTL       int64 // as granted, ns
	Left      int64 // until Deadline, ns; 0: it has passed
	Deadline  int64 // cluster time
	Opened    uint64
	OpenedAt  int64 // cluster time
	Window    uint64
	Mark      uint64
	Policy    Policy
	Grace     int64
	Stale     bool // its deadline has passed and its policy keeps it
	Revoked   bool // its end is decided; it may only give back
	// What it holds, awaits and has of keys, by SessionPage; Next is where that
	// goes on, zero: nowhere.
	Claims []ClaimInfo
	Waits  []ClaimInfo
	Keys   []string
	Next   Cursor
}

// ClaimInfo is one holder or waiter of one name.
type ClaimInfo struct {
	Name     string
	Kind     Kind
	Session  SessionID // zero: nobody's; it outlives its session by min-hold or delay
	Seq      uint64
	Identity string
	Owner    string
	Meta     string
	Mode     Mode
	Weight   int64
	Token    uint64 // 0: it waits
	Created  uint64 // revision at which it was made
	Modified uint64 // revision of its last change
	Version  uint64 // how often it changed
	Value    []byte // election
	Since    int64  // cluster time of its grant, or of its joining the queue
	// Deadline is its own in cluster time (wait, max-hold, min-hold, delay, end
	// of a revocation), 0: none; Ends is the earlier of that and its session's.
	Deadline int64
	Ends     int64
	// Position is 0 for holders and 1 for the first waiter. Before is the claim
	// that it waits behind: the one before it in the queue, or for the first
	// the last of the holders.
	Position    int
	Before      SessionID
	BeforeSeq   uint64
	Reserved    bool // a claim of several names has this one set aside for it
	Upgrade     bool // it waits to become exclusive, before the queue
	Revoked     bool
	Stale       bool
	Reclaimable bool
}

// ResourceInfo is one name.
type ResourceInfo struct {
	Namespace string
	Name      string
	Kind      Kind
	Limit     int64  // capacity; latch: first count; barrier: parties
	Used      int64  // of the capacity
	Number    uint64 // counter: value; sequence: next; latch: what is left
	Unsigned  bool   // counter
	Created   uint64
	Modified  uint64
	Version   uint64
	Value     []byte // election: the leader's
	Holding   int    // how many hold it
	Waiting   int    // how many wait for it
	// Those of them that this answer tells; Next is where the rest goes on, zero:
	// there is none.
	Holders []ClaimInfo // by token
	Waiters []ClaimInfo // in order of arrival, an upgrade first
	Next    Cursor
}
