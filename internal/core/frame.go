package core

// Version is the version of every encoding in this package but that of entries:
// frames, messages and snapshots begin with it. A decoder refuses what is newer.
const Version = 1

// Frame is what a client sends: commands of one session, which go verbatim into
// the log.
type Frame struct {
	Session SessionID
	// Attempt is the client's number for this sending; the reply echoes it.
	Attempt uint64
	// Mark is the lowest number with a result that the client still wants: everything
	// below may be forgotten and will never be sent again.
	Mark     uint64
	Commands []Command
}

// Renewal is a keepalive.
type Renewal struct {
	Session SessionID
	Attempt uint64
	TTL     int64 // 0: the session's own
}

// MaxRevision is where tokens end: beyond it JSON and SQL cannot hold them all.
const MaxRevision = 1 << 53

// EntryKind is what an entry is for.
type EntryKind uint8

// The kinds of entries. Only EntryCommands carries renewals and frames.
const (
	EntryCommands EntryKind = iota // renewals and frames; without any it is a bare stamp
	// EntryForget is how a restored or forced cluster starts: all sessions end
	// with everything that hangs on them, untold, and the revision jumps to
	// Seconds·2²⁰, or by 2⁴⁰ if it is beyond that, so that no token of the forgotten
	// past can come again. It asks nobody: only fencing protects from old holders.
	EntryForget
	EntryFreeze   // nothing is granted until EntryUnfreeze
	EntryUnfreeze // and what could not be granted meanwhile is granted now
	EntryQuota    // sets the quotas from here on
	// EntryRaise raises the revision to Revision, if it is below: tokens that nodes with another
	// state have given do not come again. Since version 6.
	EntryRaise
)

// Entry is one log entry.
type Entry struct {
	Kind EntryKind
	// Version is the one that it is applied by the rules of; 0: the newest, [EntryVersion].
	// A machine is of the greatest version that an entry brought.
	Version uint8
	// Now is cluster time, sampled after the last command of the entry arrived:
	// 0 to 2⁶² nanoseconds.
	Now int64
	// Seconds is the Unix time of an EntryForget, and from version 3 on that of
	// commands, for limiters that go by the calendar; 0: it is not told.
	Seconds int64
	// Quota is that of an EntryQuota, else zero.
	Quota Quota
	// Revision is that of an EntryRaise, below [MaxRevision], else zero.
	Revision uint64
	Renewals []Renewal
	Frames   [][]byte // encoded Frames, as they came
}
