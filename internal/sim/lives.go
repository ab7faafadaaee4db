package sim

import (
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// owner is the client that opened a session.
type owner interface {
	// believesIn reports whether it may act on the session at true time t.
	believesIn(id core.SessionID, t int64) bool
}

// life follows sessions from their beginning to their end. The owner of one knows of
// its end before it happens, and an id has one life only.
func (k *checker) life(e *core.Event) {
	switch e.Verb {
	case core.VerbOpened:
		k.opened[e.Session] = true
		if k.undone[e.Session] {
			k.c.violate("session %x: a call that was answered as not done is done", e.Session[:9])
		}
		if k.ended[e.Session] {
			k.c.violate("session %x was opened again after its end", e.Session[:9])
		}
	case core.VerbExpired, core.VerbEnded:
		k.ended[e.Session] = true
		if o := k.sessions[e.Session]; o != nil && o.believesIn(e.Session, k.c.now) {
			k.c.violate("session %x ended while its owner still believes in it", e.Session[:9])
		}
	}
}

// alive: nothing is granted to a session that has ended.
func (k *checker) alive(e *core.Event) {
	if k.ended[e.Session] {
		k.c.violate("%s: granted to session %x, which has ended", e.Name, e.Session[:9])
	}
}

// wholeLife: a client that hears that a session was opened or renewed at n has it for
// a whole TTL from then on, however often it was asked for.
func (k *checker) wholeLife(id core.SessionID, n, x, ttl int64) {
	if x != 0 && x-n < ttl {
		k.c.violate("session %x was opened or renewed for %s, with a TTL of %s", id[:9], time.Duration(x-n), time.Duration(ttl))
	}
}

// wanted: a caller that has heard that its claim is cancelled neither gets nor
// awaits it any more, however late the claim arrived.
func (k *checker) wanted(e *core.Event) {
	if o, ok := k.sessions[e.Session].(*caller); ok && o.session == e.Session && o.claimed != e.Name {
		k.c.violate("%s: %s by session %x, which has heard that this is cancelled", e.Name, e.Verb, e.Session[:9])
	}
}

// settled: after the healing no caller still waits for an answer.
func (k *checker) settled() {
	if i := slices.IndexFunc(k.c.callers, func(o *caller) bool { return o.claimed != "" }); i >= 0 {
		k.c.violate("caller %d still waits for an answer long after everything has healed", k.c.callers[i].id)
	}
}
