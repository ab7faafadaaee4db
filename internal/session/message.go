package session

import "github.com/holdfast-io/holdfast/internal/core"

// MessageVersion begins every message; a decoder refuses what is newer.
const MessageVersion = 1

// MessageKind is what a message says. The numbers are on the wire: never reuse
// one.
type MessageKind uint8

// The kinds. One stream carries many sessions; what belongs to which is said by
// Session and Stream, which every message has.
const (
	// KindAttach (to the server) binds the session to this stream under the
	// number Stream; the greatest wins. The answer is the table.
	KindAttach MessageKind = 1
	// KindFrame (to the server): Body is an encoded core.Frame.
	KindFrame MessageKind = 2
	// KindRenewal (to the server): a keepalive, Attempt and TTL.
	KindRenewal MessageKind = 3
	// KindReply (to the client): Body is an encoded core.Reply.
	KindReply MessageKind = 4
	// KindRenewed (to the client): Attempt, Now, Deadline.
	KindRenewed MessageKind = 5
	// KindPush (to the client): Rows has the one claim that changed.
	KindPush MessageKind = 6
	// KindTable (to the client): one Piece of the claim table, from 0 on, the
	// last one with Last. Known is false if there is no such session. Nothing
	// else of the session comes before the last piece.
	KindTable MessageKind = 7
	// KindRefused (to the client): what was sent as Attempt (0: the attach) was
	// not taken, as Refusal, Code and Text say.
	KindRefused MessageKind = 8
)

// Refusal is why the server did not take a message. It tells nothing about
// earlier attempts and anchors nothing.
type Refusal uint8

// The refusals.
const (
	// RefusedNoLeader: this endpoint cannot serve; try Endpoint or another one, or
	// attach again over the same stream to hear of the next leader.
	RefusedNoLeader Refusal = 1 + iota
	// RefusedBusy: try again after RetryAfter.
	RefusedBusy
	// RefusedNoSession: there is no such session.
	RefusedNoSession
	// RefusedDenied: never, for the reason in Code and Text.
	RefusedDenied
)

// Message is one message of a stream in either direction. Which fields count is
// said at its kind; the others are zero.
type Message struct {
	Kind    MessageKind
	Session core.SessionID
	// Stream is the number of the attach that the message belongs to.
	Stream uint64
	// Pushes counts the pushes of this session on this stream: of a push its own
	// number, from 1 on, of a reply or Renewed how many came before it. A client
	// that has seen fewer has missed something and attaches anew before it
	// believes the reply.
	Pushes uint64

	Body     []byte
	Attempt  uint64
	TTL      int64 // ns; 0: the session's own
	Now      int64
	Deadline int64

	Rows  []core.ClaimRow
	Piece uint64
	Last  bool
	Known bool

	Refusal    Refusal
	Code       core.Code
	Text       string
	RetryAfter int64 // ns
	Endpoint   string
}
