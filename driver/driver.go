// Package driver lets you bring Holdfast to another engine.
//
// For an engine that only compares and swaps implement [Store]; package
// driver/onstore makes a driver of it. For any other embed [Base], override what the
// engine can do and say so in [Info.Features]. Run package drivertest over the result. Package holdfast turns any [Driver]
// into the API that programs use: it checks names and options, keeps holds,
// re-entrancy and hooks; a driver grants, counts, stores and watches.
//
// What every driver promises, whatever its engine:
//
//   - A call that fails returns an [*Error], or a plain error of the standard
//     library. Its Outcome says what was changed: [NotDone] nothing, [Done] all. The
//     zero Outcome and a plain error mean that it is not known.
//   - Ending the context of a waiting Acquire returns at once, or when the engine has confirmed
//     that the request is taken back; the driver goes on with that in the background, also if it is
//     granted meanwhile. The outcome is NotDone only if nothing of it is left.
//   - A grant's token is greater than that of every earlier grant of the same
//     name, for ever.
//   - A read tells all that it was asked for, or says where it goes on, or fails
//     with ErrExhausted. What is there all the time is told exactly once, except
//     in the pages of a [SessionInfo].
//   - All methods may be called at the same time.
package driver

import (
	"context"
	"encoding/hex"
	"iter"
	"time"
)

// Driver is a backend. It cannot be implemented without embedding [Base] (or
// another Driver), so that it may grow and a wrapper keeps every ability of
// what it wraps.
type Driver interface {
	// Info is constant over the life of the driver.
	Info() Info

	// Acquire takes all of r.Wants or none. With r.Try a busy name is ErrHeld
	// at once; otherwise Acquire waits until ctx ends, or the session that it
	// waits on. A wait on a latch or barrier is a grant too, and is released.
	//
	// When ctx ends, Acquire returns at once, and the driver takes the request back in
	// the background; or a round trip later, to say NotDone, for which nothing of the request
	// may be left. A wait at a barrier is the exception, since the other parties
	// count it: Acquire returns after the engine has said that the party left, or with
	// the grant if all parties had come. If the engine says neither within 5 s, the
	// Outcome of the error is Unknown.
	Acquire(ctx context.Context, r *Request) (Grant, error)
	// Inspect tells holders and waiters, by name.
	Inspect(ctx context.Context, r *InspectRequest) (InspectReply, error)
	// Force ends another's claim. The token is required, so that the next
	// holder is never hit.
	Force(ctx context.Context, r *ForceRequest) (ForceReply, error)
	// Resize sets a semaphore's limit; Delete removes an idle semaphore, latch
	// or barrier, a counter, a sequence or a limiter.
	Resize(ctx context.Context, name string, limit int64) error
	Delete(ctx context.Context, kind ResourceKind, name string) error

	// OpenSession opens a session of its own, not shared with other calls.
	OpenSession(ctx context.Context, s Spec) (*Session, error)
	// KeepSession renews s by hand for ttl (0: the one it has). The deadline only
	// grows.
	KeepSession(ctx context.Context, s *Session, ttl time.Duration) error
	// EndSession revokes s with all that hangs on it; ErrLost if it had ended.
	EndSession(ctx context.Context, s *Session) error
	// SessionInfo tells what the engine knows of a session, by its id.
	SessionInfo(ctx context.Context, r *SessionInfoRequest) (SessionInfo, error)

	// Count changes a counter, or reads it, and tells the value afterwards.
	Count(ctx context.Context, r *CountRequest) (CountReply, error)
	// Reserve takes numbers of a sequence: no number is given twice.
	Reserve(ctx context.Context, r *ReserveRequest) (ReserveReply, error)
	// CountDown takes from a latch, never below 0, and makes it if it is not there and
	// r has a count.
	CountDown(ctx context.Context, r *CountDownRequest) (CountDownReply, error)
	// Limit decides by the engine's clock, or by the caller's where it has none.
	Limit(ctx context.Context, r *LimitRequest) (LimitReply, error)
	// Txn reads and changes keys: all of it at one revision, or nothing. Without
	// [FeatureTxn] it is asked about one key at a time, or a prefix that is only read.
	Txn(ctx context.Context, r *TxnRequest) (*TxnReply, error)
	// Watch yields a Ready event first, then everything that matches, in
	// order. It ends with ctx, or with an error as its last pair.
	Watch(ctx context.Context, r *WatchRequest) iter.Seq2[Event, error]

	// Sweep removes what idle names have left in the engine, in small steps that
	// nobody else waits for. When it fails, the reply tells what was removed
	// until then.
	Sweep(ctx context.Context, r *SweepRequest) (SweepReply, error)

	// Ping asks the engine for an answer.
	Ping(ctx context.Context) error
	// OnFault sets what is called when something fails in the background: a
	// keepalive, a release that nobody waits for. Called before any other
	// method; f is never nil and must not block.
	OnFault(f func(op, name string, err error))
	// Close ends every session that this driver opened, in one step where the
	// engine allows; calls that wait answer ErrClosed. It is called once.
	Close(ctx context.Context) error

	base()
}

// Feature is an ability that a program can ask for when it opens a Space. The
// conformance suite tests the declared ones, and that the others answer
// errors.ErrUnsupported.
type Feature string

// The features.
const (
	FeatureFencing      Feature = "fencing"       // every grant has a growing token
	FeatureFIFO         Feature = "fifo"          // waiters are served in order of arrival, over all processes
	FeatureLostFirst    Feature = "lost-first"    // a holder knows of its loss before anyone else is granted
	FeatureShared       Feature = "shared"        // reader-writer locks
	FeatureWeighted     Feature = "weighted"      // semaphores
	FeatureUpgrade      Feature = "upgrade"       // a reader becomes the writer, and back
	FeatureResize       Feature = "resize"        // a semaphore's limit can change
	FeatureForce        Feature = "force"         // another's claim can be ended
	FeatureMaxHold      Feature = "max-hold"      // a hold ends by itself after a time
	FeatureMinHold      Feature = "min-hold"      // a name stays taken for a time after its grant
	FeatureDelay        Feature = "delay"         // a name stays taken for a time after a loss
	FeatureAll          Feature = "all"           // several names in one call
	FeatureAtomicAll    Feature = "atomic-all"    // and in one step, with one place in the queue
	FeatureCounter      Feature = "counter"       // counters
	FeatureSequence     Feature = "sequence"      // sequences
	FeatureKV           Feature = "kv"            // keys, each on its own
	FeatureTxn          Feature = "txn"           // transactions over several keys
	FeatureWatch        Feature = "watch"         // events from now on
	FeatureHistory      Feature = "watch-history" // events from an earlier revision
	FeatureElection     Feature = "election"      // elections
	FeatureLatch        Feature = "latch"         // latches and barriers
	FeatureSession      Feature = "session"       // sessions kept by hand
	FeatureDurable      Feature = "durable"       // what was answered survives a restart of the engine
	FeatureManyMachines Feature = "many-machines" // programs on several machines can share it
	FeatureSweep        Feature = "sweep"         // what idle names have left can be removed
	FeatureReclaim      Feature = "reclaim"       // stale holds can be kept until they are wanted, or for ever
	FeatureLimit        Feature = "limit"         // rate limits
)

// Info says what a backend can do.
type Info struct {
	// Scheme is the URL scheme, for messages.
	Scheme   string
	Features map[Feature]bool
	// MinTTL and MaxTTL bound a session's TTL; both 0: there is none, and
	// liveness is a connection or the kernel.
	MinTTL, MaxTTL time.Duration
	// MaxName is the longest name in bytes; 0: 512.
	MaxName int
	// Canonical maps a name to the engine's own form: equal results are one
	// resource. nil: every name is its own.
	Canonical func(name string) string
}

// ResourceKind is what a name is.
type ResourceKind uint8

// The kinds. A name has one kind as long as it is known; using it as another
// is ErrConflict.
const (
	Mutex ResourceKind = 1 + iota
	RWMutex
	Semaphore
	Election
	Latch
	Barrier
	Counter
	Sequence
	Limiter
)

func (k ResourceKind) String() string {
	names := [...]string{"", "mutex", "rwmutex", "semaphore", "election", "latch", "barrier", "counter", "sequence", "limiter"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Mode is how a claim shares a name.
type Mode uint8

const (
	// Exclusive: nobody else. The mode of mutexes, writers and elections.
	Exclusive Mode = iota
	// Shared: with others of its mode (readers, latch and barrier waits) or
	// up to the limit (semaphores).
	Shared
)

// Want is one name in a claim.
type Want struct {
	Name string
	Kind ResourceKind
	Mode Mode
	// Weight is what a semaphore claim takes; 0 means 1.
	Weight int64
	// Limit is a semaphore's capacity or a barrier's number of parties; 0: the
	// one it has. A latch's count, when it is new.
	Limit int64
}

// Spec names a session. Equal specs of one driver share one session; it is
// comparable on purpose.
type Spec struct {
	TTL   time.Duration
	Owner string // for people; decides nothing
	Meta  string
	// Manual: only KeepSession renews it.
	Manual bool
	// Policy and Grace say what becomes of its claims when the deadline passes: the
	// zero value unless the caller asked for ReclaimOnDemand or ReclaimNever, which
	// needs [FeatureReclaim].
	Policy Policy
	Grace  time.Duration
	_      struct{}
}

// Policy says when the claims of a session are freed after its deadline.
type Policy uint8

const (
	// AtDeadline: at once.
	AtDeadline Policy = iota
	// OnNextAcquire: when somebody else wants them and Grace has passed; until
	// then a keepalive revives the engine's session. The client's [Session], once its
	// deadline has passed, stays over.
	OnNextAcquire
	// Never: only by release, revocation or force.
	Never
)

// Request asks for a hold.
type Request struct {
	// ID makes a retry of the same request the same claim.
	ID    [16]byte
	Wants []Want
	Spec  Spec
	// Session is the session to hang it on; nil: the shared one of Spec.
	Session *Session
	Try     bool
	// MaxHold ends the hold this long after its grant or last extension.
	MaxHold time.Duration
	// MinHold keeps the name taken this long after the grant, released or not.
	MinHold time.Duration
	// Delay keeps the name from everybody this long after the claim was lost.
	Delay time.Duration
	// Value is what a candidate proclaims when it is elected.
	Value []byte
	// Lost is called at most once when this hold alone ends (forced, max-hold);
	// it may come before Acquire returns. It does not block and calls nothing of
	// the driver, so it may be called under the driver's locks. Never nil.
	Lost func(cause error)
	// Waiting is called when the claim is queued, with its place, 1 being next.
	// It may be nil. It does not block and calls nothing of the driver, so it may be
	// called under the driver's locks.
	Waiting func(position int)
	_       struct{}
}

// Grant is a granted Request.
type Grant struct {
	// Token is the grant's fencing token, of several wants the greatest.
	Token Token
	// Session ends the hold when it ends; nil: only Request.Lost does.
	Session *Session
	// Deadline is when this hold alone ends (max-hold); zero: with its session.
	Deadline time.Time
	Handle   Handle
	// Tokens has one token a want where they differ; nil: Token serves all.
	Tokens []Token
}

// Handle is the backend's side of one hold.
type Handle interface {
	// Release gives it back; ErrLost if the engine knows that it had ended. It
	// returns when ctx ends, at the latest, and is called again if it is unknown
	// whether the engine heard it. A hold that was reported lost by Request.Lost is
	// released too: that confirms that its holder knows.
	Release(ctx context.Context) error
	// Change alters it, as c says; only one field of c is set.
	Change(ctx context.Context, c Change) (Grant, error)
}

// Change asks to alter a hold.
type Change struct {
	// Upgrade turns a shared hold into the exclusive one, waiting for other
	// readers; the grant is a new hold with a new token, and the old one is
	// over. On any failure the shared hold stays. Lost serves the new hold.
	Upgrade bool
	Lost    func(cause error)
	// Downgrade turns the exclusive hold into a shared one with the same token. If
	// its outcome is not known, Release of the handle gives back what it is then; so
	// it is after HandOver.
	Downgrade bool
	// Extend moves the max-hold deadline to now + Extend, only forward.
	Extend time.Duration
	// Proclaim sets an election's value; nil: not asked for.
	Proclaim *[]byte
	// HandOver resigns in favour of the first candidate with this owner.
	HandOver string
	_        struct{}
}

// Claim is one holder or waiter, as Inspect and ErrHeld tell it.
type Claim struct {
	Name     string
	Kind     ResourceKind
	Mode     Mode
	Weight   int64
	Token    Token // 0: waiting
	Owner    string
	Meta     string
	Session  SessionID
	Value    []byte
	Created  Revision      // at which it was made
	Modified Revision      // of its last change
	Version  uint64        // how often it changed
	Held     time.Duration // since its grant, or since it was queued
	// ExpiresIn is the time left to its session or its own deadline, whichever
	// is first; 0: unknown or none.
	ExpiresIn time.Duration
	Position  int // 0: holds; 1: next
	// Before is the session of the claim it waits behind.
	Before SessionID
	// Revoked: its end is decided, but its holder may still believe in it.
	Revoked bool
	// Stale: its session's deadline has passed and its policy keeps it.
	Stale bool
}

// Resource is one name, as Inspect tells it.
type Resource struct {
	Name              string
	Kind              ResourceKind
	Limit, Used       int64
	Created, Modified Revision
	// Holding and Waiting are how many hold it and wait for it, as far as the
	// engine knows; Holders and Waiters those of them that this answer tells, in
	// the order of their tokens and of their places.
	Holding, Waiting int
	Holders, Waiters []Claim
	// More: those are not all. An Inspect of the name tells the rest.
	More bool
}

// InspectRequest asks for one name, for several, or for all with a prefix, in order of
// name.
type InspectRequest struct {
	Name   string
	Prefix bool
	// Names are several, at most 1,000, all told at one revision, in this order, those
	// that are unknown left out, with their first claims, at least one of each; what is too
	// long for that is ErrExhausted. The other fields are empty. Drivers without
	// [FeatureAtomicAll] are not asked so.
	Names []string
	// After is where to begin: what an earlier answer's Next was, or with Prefix
	// any name, to begin behind it. Empty: at the beginning.
	After string
	// Max bounds the answer: so many names, of one name so many claims. It may be
	// shorter all the same; 0: as long as the engine likes.
	Max int
	_   struct{}
}

// InspectReply answers it. An unknown name gives no resource and no error.
type InspectReply struct {
	Resources []Resource
	Revision  Revision
	// Next is where the names, or the claims of the one name, go on; empty: this
	// is the end of them.
	Next string
}

// ForceRequest ends the claim on Name that has Token.
type ForceRequest struct {
	Name  string
	Token Token
	// Now frees the name at once instead of waiting until its holder has confirmed by
	// Release or its deadline has passed. Only fencing protects then.
	Now bool
	_   struct{}
}

// ForceReply says how long the name may still be believed to be held.
type ForceReply struct{ Until time.Duration }

// SessionID names a session.
type SessionID [16]byte

// String is the id in hexadecimal digits.
func (id SessionID) String() string { return hex.EncodeToString(id[:]) }

// SessionInfoRequest asks for a session.
type SessionInfoRequest struct {
	ID SessionID
	// After is where to begin: what an earlier answer's Next was; empty: at the
	// beginning.
	After string
	// Max bounds the names and keys of the answer. It may be shorter all the same,
	// and longer by the names of one claim; 0: as long as the engine likes.
	Max int
	_   struct{}
}

// SessionInfo is a session as the engine knows it.
type SessionInfo struct {
	ID        SessionID
	TTL       time.Duration // as granted
	ExpiresIn time.Duration
	Owner     string
	Meta      string
	// What it holds and waits for, and the keys bound to it, in any order; some may
	// be told several times. Next is where that goes on; empty: this is the end of
	// it.
	Names []string
	Waits []string
	Keys  []string
	Next  string
}

// CountOp is what to do to a counter.
type CountOp uint8

// The operations. Numbers travel as uint64; a signed counter's are its two's
// complement.
const (
	CountLoad  CountOp = iota // nothing; an absent counter is 0
	CountAdd                  // add A, saturating
	CountSub                  // subtract A, saturating
	CountStore                // set to A
	CountSwap                 // set to B if it is A
)

// CountRequest changes a counter. The first change fixes whether it is signed.
type CountRequest struct {
	// ID makes a repetition the same request: it counts once where the engine
	// can remember. The library retries a CountRequest that may have happened, unless
	// Once is set, and no other request.
	ID [16]byte
	// Once is a promise that this request is not repeated by its caller: an
	// engine need not remember it.
	Once     bool
	Name     string
	Op       CountOp
	Unsigned bool
	A, B     uint64
	_        struct{}
}

// CountReply has the value afterwards.
type CountReply struct {
	Value   uint64
	Swapped bool
}

// ReserveRequest takes N numbers of a sequence; 0: only tell the next one.
type ReserveRequest struct {
	ID    [16]byte
	Name  string
	N     uint64
	Start uint64 // the first number of a new sequence
	_     struct{}
}

// ReserveReply: the numbers First to First+N-1 are the caller's.
type ReserveReply struct{ First uint64 }

// CountDownRequest takes By off a latch's count; 0: only tell it.
type CountDownRequest struct {
	ID    [16]byte
	Name  string
	Count int64 // of a new latch; 0: it must exist
	By    int64
	_     struct{}
}

// CountDownReply has what is left; 0: the latch is open.
type CountDownReply struct{ Left int64 }

// SweepRequest asks for what idle names have left in the engine to be removed:
// names that nobody holds or awaits. Callers cannot tell a name that was swept
// from one that was not: counters, sequences, keys and latches stay, and the
// next token of a name is greater than its last. An engine that has to tell a
// name that is idle from one that is on its way leaves alone what was used a
// moment ago.
type SweepRequest struct {
	// Prefix: only names that begin with it.
	Prefix string
	// Limits: idle semaphores and barriers too, as Delete removes them. This can
	// be noticed: the next user sets the limit anew, whatever it was.
	Limits bool
	_      struct{}
}

// SweepReply tells of how many names nothing is left.
type SweepReply struct{ Removed int64 }
