package driver

// Token is a fencing token: the number of a grant. Of two exclusive grants of
// one name the later has the greater token, for ever. It stays below 2⁵³, so
// that JSON, JavaScript and database/sql take it as it is.
type Token uint64

// Revision is the backend's logical clock: every change takes the next one. It
// stays below 2⁵³.
type Revision uint64
