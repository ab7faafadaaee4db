package pipeline

import (
	"time"

	"github.com/holdfast-io/holdfast/guard"
)

// Status is where a run stands.
type Status string

// The statuses. The last three are ends.
const (
	Queued    Status = "queued"    // it waits for a place
	Blocked   Status = "blocked"   // it waits for When
	Acquiring Status = "acquiring" // it waits for its holds
	Launching Status = "launching" // it holds everything, and its command may start
	Running   Status = "running"   // its command runs
	Verifying Status = "verifying" // it waits for Until
	Pausing   Status = "pausing"   // it rests before it is started again
	Unknown   Status = "unknown"   // nobody saw the end of its command: somebody has to say
	Stopping  Status = "stopping"  // it is cancelled, and its command has yet to end
	Done      Status = "done"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// Ended reports whether nothing can happen to the run any more.
func (s Status) Ended() bool { return s == Done || s == Failed || s == Cancelled }

// State is all that is known of a run: the sum of its events. The zero State is a run of
// which nothing is known. It can be kept as JSON in place of the events before it.
type State struct {
	Status Status `json:"status"`
	// Phase is the name of the phase that the run is in, and Attempt counts how often it was
	// entered, from 1.
	Phase   string `json:"phase,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	// Since is when the run came into its status.
	Since time.Time `json:"since"`
	// Reason says why it waits, or has ended as it has.
	Reason string `json:"reason,omitempty"`
	// Token is that of what the phase holds; 0: it holds nothing.
	Token uint64 `json:"token,omitempty"`
	// Ran: the command of this attempt has succeeded.
	Ran bool `json:"ran,omitempty"`
	// Lost: what it held was lost while the command ran.
	Lost bool `json:"lost,omitempty"`
	// Until is when the wait of the status is over; zero: it has no end.
	Until time.Time `json:"until,omitzero"`
	// Code and Tail are the exit code and the end of the output of the last command.
	Code int    `json:"code,omitempty"`
	Tail string `json:"tail,omitempty"`
	// Failure says which phase failed first, and why, if one after it goes on. Failed are the
	// phases that have failed, in order: see [Definition.Path].
	Failure string   `json:"failure,omitempty"`
	Failed  []string `json:"failed,omitempty"`
}

// EventKind is what has happened.
type EventKind string

// The kinds of events.
const (
	Submitted EventKind = "submitted" // the run exists
	Admitted  EventKind = "admitted"  // it has a place
	Checked   EventKind = "checked"   // When or Until was evaluated, or holds or limits are not there: Outcome and Reason
	Acquired  EventKind = "acquired"  // all holds are held, under Token
	Launched  EventKind = "launched"  // the command starts now; to be kept before it does
	Exited    EventKind = "exited"    // the command has ended: Code and Tail, and Reason if it did not end by itself
	// NotStarted takes launched back: what the command was to run under ended before it began.
	NotStarted EventKind = "not started"
	// Refused: what the attempt waits for can never be had, and Reason says why. No retry is used.
	Refused   EventKind = "refused"
	Lost      EventKind = "lost"       // what was held is lost, for Reason
	Ticked    EventKind = "ticked"     // time has passed
	TakenOver EventKind = "taken over" // another runner has the run now, and nothing runs or is held
	Answered  EventKind = "answered"   // somebody says how a command ended that nobody saw: Answer
	Cancel    EventKind = "cancel"     // the run is to end
)

// Answer is what an operator says of a command with an end that no runner saw.
type Answer string

// The answers.
const (
	Succeeded Answer = "succeeded"
	DidFail   Answer = "failed"
	Again     Answer = "again" // it may be started again
)

// Event is something that has happened to a run. Phase and Attempt say to which attempt,
// but for submitted, admitted, taken over and cancel: one that comes late for another is refused.
type Event struct {
	Kind    EventKind     `json:"kind"`
	At      time.Time     `json:"at"`
	Phase   string        `json:"phase,omitempty"`
	Attempt int           `json:"attempt,omitempty"`
	Outcome guard.Outcome `json:"outcome,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Token   uint64        `json:"token,omitempty"`
	Code    int           `json:"code,omitempty"`
	Tail    string        `json:"tail,omitempty"`
	Answer  Answer        `json:"answer,omitempty"`
	// Final is of exited: the program of the command is not there, and no retry is used.
	Final bool `json:"final,omitempty"`
}

// EffectKind is something to be done.
type EffectKind string

// The kinds of effects.
const (
	Enqueue EffectKind = "enqueue" // wait for a place: admitted
	Check   EffectKind = "check"   // evaluate Condition, now and when something changes: checked
	Acquire EffectKind = "acquire" // take all Holds together: acquired
	Launch  EffectKind = "launch"  // take Limits, keep launched, then do what follows from it
	Start   EffectKind = "start"   // start Run: exited
	Stop    EffectKind = "stop"    // end the command: exited
	Release EffectKind = "release" // give back what Token holds
	WakeAt  EffectKind = "wake at" // tell at At that time has passed: ticked
	Ask     EffectKind = "ask"     // tell that somebody has to say how the command ended: answered
	Leave   EffectKind = "leave"   // give the place back
	Tell    EffectKind = "tell"    // tell the watchers: Verb and Reason
)

// Effect is something that the runner has to do; it replaces what it was told before to
// check, acquire and wake at.
type Effect struct {
	Kind    EffectKind
	Phase   string
	Attempt int
	// Condition is what to check.
	Condition *guard.Condition
	// Holds are what to acquire, Limits what to take, and Token what to release.
	Holds  []Want
	Limits []Limit
	Token  uint64
	// Run is the command to start.
	Run []string
	// At is when to wake.
	At time.Time
	// Verb and Reason are what to tell.
	Verb, Reason string
}

// MaxTail is how many bytes of the end of a command's output are kept.
const MaxTail = 4 << 10
