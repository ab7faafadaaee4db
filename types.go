package holdfast

import "github.com/holdfast-io/holdfast/driver"

// Token is a fencing token: the number of a grant. Of two exclusive grants of
// one name the later has the greater token, for ever. It stays below 2⁵³, so
// that JSON, JavaScript and database/sql take it as it is.
type Token uint64

// Revision is the backend's logical clock: every change takes the next one. It
// stays below 2⁵³.
type Revision uint64

// maxToken is the first number that is no token any more.
const maxToken = 1 << 53

// What a backend tells, in its own words; the fields are documented there.
type (
	// Info says what a backend can do.
	Info = driver.Info
	// Feature is an ability that [Require] can ask for.
	Feature = driver.Feature
	// Claim is one holder or waiter.
	Claim = driver.Claim
	// Resource is one name with its holders and waiters.
	Resource = driver.Resource
	// Event is something that happened, as [Space.Watch] tells it.
	Event = driver.Event
	// SessionID names a session.
	SessionID = driver.SessionID
	// SessionInfo is a session as the backend knows it.
	SessionInfo = driver.SessionInfo
)
