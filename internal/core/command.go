package core

import (
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

// SessionID names a session; clients choose it at random.
type SessionID [16]byte

// Op is what a command does.
type Op uint8

// The operations. The numbers are on disk and on the wire: never reuse one.
//
// A command's target is a claim of its own session, named by the number (Seq)
// of the command that made it.
const (
	// OpOpen makes the session, or refreshes it if it is there: Namespace,
	// Identity, TTL, Owner, Meta, Window, Policy, Grace. Flags: Fleeting, Fresh.
	// Seq is 0.
	OpOpen Op = 1
	// OpEnd ends the session with all that hangs on it. Seq is 0.
	OpEnd Op = 2
	// OpAcquire claims Wants: Flags (Try, Reentrant), Wait, MaxHold, MinHold,
	// Delay, Value, Owner ("": that of the session).
	OpAcquire Op = 3
	// OpRelease gives back the claim Target, or the one on Name with Token; it
	// is also how the holder of a revoked claim confirms.
	OpRelease Op = 4
	// OpCancel settles Target, seen or not: a waiting claim is withdrawn, a
	// granted one released, a granted upgrade turned back into the shared
	// claim, and an unseen number will never have an effect.
	OpCancel Op = 5
	// OpExtend moves the max-hold deadline of Target to now + MaxHold, only
	// forward.
	OpExtend Op = 6
	// OpUpgrade claims exclusively what Target holds shared; the new claim has
	// this command's number, and Target is over when it is granted. Wait.
	OpUpgrade Op = 7
	// OpDowngrade makes the exclusive claim Target shared; the token stays.
	OpDowngrade Op = 8
	// OpProclaim sets the value of the election claim Target to Value.
	OpProclaim Op = 9
	// OpHandOver releases the election claim Target in favour of the first
	// waiting candidate of Owner; without one it is ErrNotExist
	// and nothing changes.
	OpHandOver Op = 10
	// OpForce revokes the claim on Name with Token, of any session. Flags: Now.
	OpForce Op = 11
	// OpRevoke ends another session, Session, by revoking all its claims. Flags:
	// Now. In the name of that session itself it has no number, whatever that has left of its window,
	// and may be sent as often as need be.
	OpRevoke Op = 12
	// OpResize sets the capacity of the semaphore Name to Limit.
	OpResize Op = 13
	// OpDelete removes the idle object Name of Kind (semaphore, latch, barrier,
	// counter, sequence, limiter).
	OpDelete Op = 14
	// OpCount changes the counter Name: Count, Unsigned, A, B.
	OpCount Op = 15
	// OpReserve takes A numbers of the sequence Name, beginning at B if it is
	// new.
	OpReserve Op = 16
	// OpCountDown takes A off the latch Name, of count Limit if it is new.
	OpCountDown Op = 17
	// OpTxn runs If, Then, Else.
	OpTxn Op = 18
	// OpLimit asks the limiter Name: Ask.
	OpLimit Op = 19
)

// Flags alter a command.
type Flags uint8

// The flags.
const (
	Try       Flags = 1 << iota // one try: busy is CodeHeld, nothing is queued
	Reentrant                   // join a claim of this session on the same name and mode
	Now                         // skip the wait for the holder to know; fencing only
	Fleeting                    // OpOpen: the id is nobody's to send again, so its end need not be remembered
	Fresh                       // OpOpen: a session that is there is refused, not refreshed
)

// Kind is what a name is. The numbers are those of package driver.
type Kind uint8

// The kinds.
const (
	Mutex Kind = 1 + iota
	RWMutex
	Semaphore
	Election
	Latch
	Barrier
	Counter
	Sequence
	Limiter
)

func (k Kind) String() string {
	return name(k, "unknown", "mutex", "rwmutex", "semaphore", "election", "latch", "barrier", "counter", "sequence", "limiter")
}

// Mode is how a claim shares a name.
type Mode uint8

// The modes. Mutex and election claims are Exclusive, semaphore, latch and
// barrier claims Shared, reader-writer claims either.
const (
	Exclusive Mode = iota
	Shared
)

func (m Mode) String() string { return name(m, "exclusive", "shared") }

// Want is one name of a claim.
type Want struct {
	Name   string
	Kind   Kind
	Mode   Mode
	Weight int64 // semaphore: what it takes, at least 1; else 0 or 1
	// Limit is the capacity of a semaphore, the parties of a barrier or the
	// count of a latch when it is new; 0: the one it has.
	Limit int64
}

// Policy says when the claims of a session past its deadline are freed.
type Policy uint8

// The policies.
const (
	AtDeadline    Policy = iota // at once
	OnNextAcquire               // when another wants one and Grace has passed
	Never                       // by release, revocation or force only
)

// CountOp is what OpCount does.
type CountOp uint8

// The counter operations; values as in package driver.
const (
	CountLoad  CountOp = iota
	CountAdd           // add A, saturating
	CountSub           // subtract A, saturating
	CountStore         // set to A
	CountSwap          // set to B if it is A
	// CountAddAll adds A, or nothing, with CodeExhausted, where CountAdd would stop
	// at an end of the range: for a sum of several amounts.
	CountAddAll
)

// LimitOp is what OpLimit does.
type LimitOp uint8

// The operations on limiters; values as in package driver.
const (
	LimitTake    LimitOp = iota // take Cost if it is allowed; 0: only look
	LimitPeek                   // decide as LimitTake would, and change nothing
	LimitSettle                 // make what Reservation took cost Cost
	LimitReturn                 // give back Cost of the block Reservation
	LimitReset                  // make the key as if it had never been used
	LimitSetRate                // set the rate; every key begins anew
)

// LimitAsk is what OpLimit asks.
type LimitAsk struct {
	Op  LimitOp
	Key string // may be empty
	// Rate is the limiter's. A new limiter is made with it by all but LimitPeek; one
	// that differs is CodeConflict. With a Count of 0 it is not said. Its Name is the
	// caller's own, and not carried.
	Rate limit.Rate
	Cost int64
	// Wait and Ahead are those of limit.Ask, in nanoseconds: up to limit.MaxPer.
	Wait, Ahead int64
	Reservation limit.Reservation
}

func (a *LimitAsk) wait() time.Duration  { return time.Duration(a.Wait) }
func (a *LimitAsk) ahead() time.Duration { return time.Duration(a.Ahead) }

// Command is one decoded command. Which fields count is said at its Op; the
// others are zero. Strings and byte slices of a decoded command alias the frame
// and are only valid as long as it is: a caller that keeps one copies it. Every call
// under way and every hold of a client has one, so the small fields share a word.
type Command struct {
	Op     Op
	Flags  Flags
	Kind   Kind
	Count  CountOp
	Policy Policy
	// Unsigned: the counter saturates as uint64 instead of int64.
	Unsigned bool
	Seq      uint64 // from 1 on; 0 for Open and End, which are idempotent

	Target  uint64
	Wants   []Want
	Wait    int64 // ns until a queued claim is denied; 0: unbounded
	MaxHold int64 // ns; 0: none
	MinHold int64
	Delay   int64
	Value   []byte

	Name  string
	Token uint64
	Limit int64
	A, B  uint64

	Session   SessionID
	Namespace string // "" is "default"
	Identity  string // of the caller that may use the session; checked by the server
	Owner     string
	Meta      string
	TTL       int64 // ns
	Window    uint64
	Grace     int64 // ns

	If         []Compare
	Then, Else []KeyOp

	Ask *LimitAsk // OpLimit only
}

// Target of a Compare. The numbers are those of package driver.
type CompareTarget uint8

// The targets: modification and creation revision, version, value, session.
const (
	CompareMod CompareTarget = iota
	CompareCreate
	CompareVersion
	CompareValue
	CompareSession
)

// Relation of a Compare: what the key has, to what the Compare says.
type Relation uint8

// The relations.
const (
	Equal Relation = iota
	NotEqual
	Less
	Greater
)

// Compare is one condition of a transaction. An absent key has the numbers 0;
// its value and session compare false. With Prefix it must hold for every key
// with that prefix, and if there is none, for an absent key.
type Compare struct {
	Key     string
	Prefix  bool
	Target  CompareTarget
	Is      Relation
	Num     uint64
	Value   []byte
	Session SessionID
}

// KeyOpKind is what one operation of a transaction does.
type KeyOpKind uint8

// The operations.
const (
	KeyGet KeyOpKind = iota
	KeyPut
	KeyDelete
)

// SortBy is the order of a range; ties are broken by key.
type SortBy uint8

// The orders.
const (
	ByKey SortBy = iota
	ByVersion
	ByCreate
	ByMod
	ByValue
)

// KeyOp is one operation of a transaction.
type KeyOp struct {
	Kind     KeyOpKind
	Key      string
	Prefix   bool
	Value    []byte
	Session  SessionID // put: the key ends with this session; zero: none
	Expire   int64     // put: ns until the key ends by itself; 0: never
	Limit    uint64    // at most so many; 0: get: as many as one result takes, delete of a prefix: all
	Sort     SortBy
	Desc     bool
	KeysOnly bool
	Previous bool
	// After is where a range in order of key goes on: with the keys that follow
	// this one in its order.
	After string
	// Count has a range count all keys with its prefix, before After and beyond
	// Limit too.
	Count bool
}
