package session

import "github.com/holdfast-io/holdfast/internal/core"

// ActionKind is what the shell has to do.
type ActionKind uint8

// The actions. They are to be done in the order in which they come.
const (
	// Send: put Message on the stream. It is valid until the next call of the
	// session.
	Send ActionKind = 1 + iota
	// Queued: Call waits for its grant; Call.Result.Number is its place.
	Queued
	// Done: Call is over; Call.Outcome and Call.Result say how. A granted
	// Acquire or Upgrade is Done with CodeOK, and its Call stays the name of the
	// hold.
	Done
	// Lost: the hold made by Call has ended, Code says why. With CodeRevoked the
	// server waits for a Release as the holder's confirmation.
	Lost
	// Moved: the session's deadline is now Deadline.
	Moved
	// SessionOver: the session and all its holds are over for ever, because of Cause.
	// It comes before the Done of the calls that this ends.
	SessionOver
	// Redial: the stream does not come from where it should, or makes no sense;
	// use another one, Endpoint if it is not empty.
	Redial
	// Silent: the stream has not answered for longer than the session can well
	// wait. Look for another one; until there is one, answers may still come.
	Silent
	// Over: nothing more will come; forget the session.
	Over
)

// Cause is why a session is dead.
type Cause uint8

// The causes.
const (
	// Expired: its own deadline has passed.
	Expired Cause = 1 + iota
	// Ended: the server does not know it any more.
	Ended
	// Refused: the server refused to open it; Code and Text say why.
	Refused
	// Closed: End was called.
	Closed
)

// Action is one thing to do; which fields count is said at its kind.
type Action struct {
	Kind     ActionKind
	Cause    Cause
	Code     core.Code
	Call     *Call
	Deadline int64
	Text     string
	Endpoint string
	Message  Message
}

// Outcome is what is known about the effect of a call.
type Outcome uint8

// The outcomes.
const (
	// Unknown: it may have happened.
	Unknown Outcome = iota
	// NotDone: it certainly did not happen.
	NotDone
	// Answered: Result says.
	Answered
)

// Call is one command on its way, and afterwards the name of the hold that it
// made. The shell makes it, sets Command and Tag, and leaves the rest alone.
type Call struct {
	// Command is what to do; Submit sets its Seq. What its slices hold must not
	// change until the call is Done.
	Command core.Command
	// Tag is the shell's own.
	Tag any

	// Outcome, and with Answered the Result, count once the call is Done.
	Outcome Outcome
	// Denied: the server has refused it, for the reason in Result.
	Denied bool
	state  callState
	alone  bool // an Add that does not travel with others
	// unsettled: an upgrade of this hold is under way, so its absence from a
	// table proves nothing; doubted: it was absent from one meanwhile.
	unsettled, doubted bool
	sends              int32 // how often it was sent, over all streams
	void               int32 // how often of that nothing of its frame was taken
	single             bool  // it travels in a frame of its own, behind an Open at most
	delays             bool  // the claim keeps its names for a while after it is lost

	Result core.Result
	// Now is the cluster time of the answer; with it the times in Result can be
	// turned into durations.
	Now int64
	// Deadline is when the hold ends by its own (max-hold), in the client's
	// time; 0: with its session.
	Deadline int64

	attempt uint64 // the newest sending
	listed  uint64 // the newest stream with a table that had it
	maxHold int64  // ns; of the claim
	claimX  int64  // its own deadline in cluster time, until it is mapped
	heldAt  int64  // since when it waits for that

	// An Add may travel with others, see merge.go: with is the next of them; of the
	// first, last is the last and sum what they add together.
	with, last *Call
	sum        uint64

	// base is the shared hold that an upgrade, or the cancel of one, is about.
	base *Call
}

// Seq is the number of the call, 0 before Submit.
func (c *Call) Seq() uint64 { return c.Command.Seq }

// Unsent reports whether the call was never sent, so that it surely is not done.
func (c *Call) Unsent() bool { return c.sends == 0 }

// claims reports whether the call makes a claim.
func (c *Call) claims() bool {
	return c.Command.Op == core.OpAcquire || c.Command.Op == core.OpUpgrade
}

type callState uint8

const (
	unsent  callState = iota // has to be sent on this stream
	sent                     // was, and is not answered
	merged                   // was, with another that is asked in its stead
	waiting                  // a claim in the queue
	held                     // a grant that waits for an anchor
	granted                  // told to the shell
	revoked                  // told to the shell as lost, but not confirmed
	over
)
