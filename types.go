package holdfast

import "github.com/holdfast-io/holdfast/driver"

// maxToken is the first number that is no token any more.
const maxToken = 1 << 53

// What a backend tells, in its own words. The types are those of package driver,
// which documents every field; the fields are listed here because godoc shows none
// of an alias.
type (
	// Token is a fencing token: the number of a grant. Of two exclusive grants of
	// one name the later has the greater token, for ever. It stays below 2⁵³, so
	// that JSON, JavaScript and database/sql take it as it is.
	Token = driver.Token
	// Revision is the backend's logical clock: every change takes the next one. It
	// stays below 2⁵³.
	Revision = driver.Revision
	// Info says what a backend can do: Scheme, Features, the range MinTTL to MaxTTL,
	// MaxName in bytes, and Canonical, which maps a name to the backend's own form.
	Info = driver.Info
	// Feature is an ability that [Require] can ask for, such as "fifo".
	Feature = driver.Feature
	// Claim is one holder or waiter: Name, Kind, Mode, Weight, Token (0: it waits),
	// Owner, Meta, Session, Value (of an election); the revisions Created and
	// Modified, and Version, how often it changed; Held, since its grant or since it
	// was queued; ExpiresIn (0: unknown or none); Position in the queue (0: it
	// holds) and Before, the session that it waits behind; Revoked (its end is
	// decided) and Stale (its session is past its deadline and is kept).
	Claim = driver.Claim
	// Resource is one name: Name, Kind, Limit and Used, the revisions Created and
	// Modified; Holding and Waiting, how many there are; Holders and Waiters, those
	// that this answer tells, and More if that is not all.
	Resource = driver.Resource
	// Event is something that happened, as [Space.Watch] tells it, at Revision and
	// Ordinal within it: Kind and Verb (docs/events.md has them), Name; of a claim
	// Token, Owner, Mode, Weight, Session, Value and Reason; Number of a counter,
	// sequence, latch or limit; of a key KV and, if asked for, Prev.
	Event = driver.Event
	// SessionID names a session.
	SessionID = driver.SessionID
	// SessionInfo is a session as the backend knows it: ID, TTL, ExpiresIn, Owner,
	// Meta, the Names that it holds, what it Waits for, and its Keys. Next is empty
	// in what this package returns.
	SessionInfo = driver.SessionInfo
)
