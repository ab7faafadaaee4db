package session

import "slices"

// The pauses of a Route: none until every endpoint has been tried, then from
// the first to the last, doubling. The last is a fraction of an election: a new
// leader among five nodes is found within two seconds.
const (
	firstPause = int64(50e6)
	lastPause  = int64(400e6)
)

// Route says which endpoint to dial next and when. One serves a connection,
// which may carry many sessions. It is pure, and not safe for concurrent use.
type Route struct {
	endpoints []string
	next      int
	hint      string
	failures  int // in a row
	at        int64
	spread    jitter
}

// NewRoute returns a route over endpoints, at least one, beginning anywhere
// that seed says, so that many clients do not all dial the first one.
func NewRoute(seed uint64, endpoints ...string) *Route {
	r := &Route{endpoints: slices.Clone(endpoints), spread: jitter(seed)}
	r.next = int(r.spread.below(int64(len(endpoints))))
	return r
}

// Dial is the endpoint to dial, not before the time at.
func (r *Route) Dial() (endpoint string, at int64) {
	if r.hint != "" {
		return r.hint, r.at
	}
	return r.endpoints[r.next], r.at
}

// Failed says that the endpoint could not be reached, broke, or did not answer;
// the next one is tried. After a whole round of failures there is a pause.
func (r *Route) Failed(now int64) {
	r.failures++
	if r.hint != "" {
		r.hint = ""
	} else {
		r.next = (r.next + 1) % len(r.endpoints)
	}
	r.at = now
	if rounds := r.failures / len(r.endpoints); rounds > 0 {
		r.at += r.spread.backoff(rounds, firstPause/2, lastPause)
	}
}

// Hint says that the endpoint named another as the one to ask. A hint is
// followed once; it may be one that the route did not know.
func (r *Route) Hint(now int64, endpoint string) {
	r.Failed(now)
	r.hint = endpoint
}

// News says that an endpoint has come to know of another as the one to ask, as
// after an election: there is no pause before that one.
func (r *Route) News(now int64, endpoint string) { r.hint, r.at = endpoint, now }

// Worked says that a session was attached there.
func (r *Route) Worked() { r.failures, r.at = 0, 0 }

// Set replaces the endpoints, at least one.
func (r *Route) Set(endpoints ...string) {
	r.endpoints = slices.Clone(endpoints)
	r.next %= len(r.endpoints)
}
