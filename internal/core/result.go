package core

import "github.com/holdfast-io/holdfast/limit"

// Code is how a command ended. The numbers are on the wire: never reuse one.
type Code uint8

// The codes. Unless said otherwise a command with a code other than CodeOK has
// changed nothing.
const (
	CodeOK          Code = 0
	CodeQueued      Code = 1  // an Acquire or Upgrade waits; the grant will be pushed
	CodeHeld        Code = 2  // Try: busy; Holders and Waiting tell the rest
	CodeLost        Code = 3  // the target has ended before
	CodeConflict    Code = 4  // differing kind or limit, second upgrader, not idle
	CodeInvalid     Code = 5  // a field makes no sense; Text says which
	CodeNotExist    Code = 6  // no such name, claim, session or key
	CodeExhausted   Code = 7  // quota, end of a sequence, too many waiters
	CodeNoSession   Code = 8  // the session is unknown or has ended
	CodeForgotten   Code = 9  // the number is below the client's own mark
	CodeWindow      Code = 10 // the number is beyond the window, or too many bytes of results are kept: raise the mark, then send it again
	CodeTimeout     Code = 11 // a queued claim's Wait passed, told by a push
	CodeCanceled    Code = 12 // a queued claim was cancelled
	CodeRevoked     Code = 13 // forced or revoked by another
	CodeMaxHold     Code = 14 // the max-hold deadline passed
	CodePermission  Code = 15 // not yours
	CodeUnavailable Code = 16 // frozen; try later
	CodeExists      Code = 17 // OpOpen, Fresh: the session is there already
	CodeUnsupported Code = 18 // the group is of a version that does not know this yet: upgrade its nodes
	CodeFull        Code = 19 // the leader's disk is full; told by a node, never by the machine

	lastCode = CodeUnsupported
)

// TextFrozen begins the text of every refusal of a frozen machine.
const TextFrozen = "the cluster is frozen"

// Result answers one command.
type Result struct {
	Seq      uint64
	Code     Code
	OK       bool   // CountSwap: swapped; OpTxn: Then ran; LimitTake, LimitPeek: allowed
	Text     string // with a refusal: why, and what to do
	Revision uint64 // of the change, or the machine's
	Token    uint64 // granted claims
	// Deadline is the claim's own deadline in cluster time (max-hold, and the
	// end of a revocation for OpForce); 0: none. A node that holds grants back
	// says with CodeUnavailable until when.
	Deadline int64
	Number   uint64 // counter value, first of a reservation, what is left of a latch, queue position
	Window   uint64 // OpOpen: numbers granted
	Holders  []Holder
	Waiting  uint64
	Keys     []KeyResult
	Limit    *LimitAnswer // OpLimit only
}

// LimitAnswer is what a limiter answers.
type LimitAnswer struct {
	// Decision is that of LimitTake and LimitPeek; its Policy is the caller's to add.
	Decision limit.Decision
	// Reservation is what was taken.
	Reservation limit.Reservation
	// Rate is the limiter's, without a name.
	Rate limit.Rate
	// Now is when it was decided, in nanoseconds: cluster time, or for a calendar
	// window the date.
	Now int64
}

// Holder is one claim that stands in the way.
type Holder struct {
	Session  SessionID
	Owner    string
	Meta     string
	Mode     Mode
	Weight   int64
	Token    uint64
	Since    int64 // cluster time of the grant
	Deadline int64 // cluster time at which it ends unless renewed
	Revoked  bool
}

// KeyResult is what one operation of a transaction found. Count is how many keys
// a put or delete found; of a read, how many it tells, or with KeyOp.Count how many
// there are. More says that Limit or the size of a result cut a range: there are
// keys after the last one, or after KeyOp.After if there is none.
type KeyResult struct {
	Keys  []Key
	Count uint64 // keys that matched, or were deleted
	More  bool   // not all were told or, of a delete with a limit, deleted
}

// Key is a key with its value.
type Key struct {
	Name     string
	Value    []byte
	Created  uint64
	Modified uint64
	Version  uint64
	Session  SessionID
	Deadline int64 // cluster time of its own expiry; 0: none
}

// Reply answers a frame of commands. Now is the cluster time at which it was
// applied and Deadline the session's deadline then: with the time at which
// attempt Attempt was sent they anchor the client's clock.
type Reply struct {
	Session  SessionID
	Attempt  uint64
	Now      int64
	Deadline int64 // 0: there is no such session (any more)
	Results  []Result
}

// Renewed answers a renewal.
type Renewed struct {
	Session  SessionID
	Attempt  uint64
	Now      int64
	Deadline int64 // 0: there is no such session (any more)
}

// ClaimState is what has become of a claim.
type ClaimState uint8

// The states.
const (
	ClaimWaiting ClaimState = 1 + iota
	ClaimGranted
	ClaimRevoked // decided, but not yet confirmed: its holder must let go
	ClaimGone    // over; Code says why
)

// Push tells a session what became of one of its claims without its asking. It
// anchors nothing.
type Push struct {
	Session  SessionID
	Seq      uint64
	State    ClaimState
	Code     Code // ClaimGone, ClaimRevoked: why
	Token    uint64
	Deadline int64 // the claim's own, in cluster time; 0: none
}

// ClaimRow is one row of a session's claim table, the first thing after attach.
type ClaimRow = Push
