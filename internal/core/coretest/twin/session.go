package twin

import (
	"cmp"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
)

// longest is the longest TTL and grace; a renewal that asks for more gets it.
const longest = 24 * 3600e9

// remember is how long the id of an ended session stays refused.
const remember = 600e9

// session is a live session, or one whose end is being applied.
type session struct {
	id                        core.SessionID
	ns, identity, owner, meta string
	ttl                       int64
	window                    uint64
	policy                    core.Policy
	grace                     int64
	deadline                  int64
	mark                      uint64
	ending                    bool   // its end is decided; claims are still being freed
	stale                     bool   // past its deadline, kept by its policy
	emptied                   int64  // stale: since when it had nothing to keep; it is not asked again until ten minutes later
	reclaimable               bool   // and past its grace
	revoked                   bool   // ended by another; no renewal counts
	revokedNow                bool   // and its holds are not waited for
	asked                     bool   // it asked for its end
	walking                   bool   // over its claims, to free them or to tell of them
	walked                    uint64 // so far
	decided                   int    // in which turn that was decided
	records                   []record
}

// record is the kept result of a command, or what became of a claim.
type record struct {
	result core.Result
	gone   bool // of a claim that is over
}

// tombstone is the id of an ended session.
type tombstone struct {
	id    core.SessionID
	until int64
}

func (t *Twin) session(id core.SessionID) *session {
	for _, s := range t.sessions {
		if s.id == id && !s.ending {
			return s
		}
	}
	return nil
}

// renew moves a deadline forward; it never makes or revives a session whose end
// was applied.
func (t *Twin) renew(r core.Renewal) {
	out := core.Renewed{Session: r.Session, Attempt: r.Attempt, Now: t.now}
	if s := t.session(r.Session); s != nil {
		ttl := r.TTL
		if ttl == 0 {
			ttl = s.ttl
		}
		t.refresh(s, min(ttl, longest))
		out.Deadline = s.deadline
	}
	t.out.Renewed = append(t.out.Renewed, out)
}

func (t *Twin) refresh(s *session, ttl int64) {
	if s.revoked {
		return
	}
	s.deadline = max(s.deadline, t.now+ttl)
	s.stale, s.reclaimable, s.walking, s.emptied = false, false, false, 0
}

// frame answers the commands of one frame.
func (t *Twin) frame(f core.Frame) {
	r := core.Reply{Session: f.Session, Attempt: f.Attempt, Now: t.now}
	if s := t.session(f.Session); s != nil {
		s.forget(f.Mark)
	}
	for _, c := range f.Commands {
		r.Results = append(r.Results, t.command(f, c))
		t.sweep()
	}
	if s := t.session(f.Session); s != nil {
		r.Deadline = s.deadline
	}
	t.out.Replies = append(t.out.Replies, r)
}

// forget drops what lies below the client's mark.
func (s *session) forget(mark uint64) {
	s.mark = max(s.mark, mark)
	s.records = slices.DeleteFunc(s.records, func(r record) bool { return r.result.Seq < s.mark })
}

// command runs one command, at most once.
func (t *Twin) command(f core.Frame, c core.Command) core.Result {
	s := t.session(f.Session)
	switch {
	case c.Op == core.OpOpen:
		return t.open(f, c)
	case c.Op == core.OpEnd:
		return t.endAsAsked(f.Session, s)
	case s == nil:
		return t.refuse(c, core.CodeNoSession)
	case c.Op == core.OpRevoke && c.Seq == 0 && c.Session == f.Session:
		return t.dated(t.revoke(s, c))
	case c.Seq == 0:
		return t.refuse(c, core.CodeInvalid)
	case c.Seq < s.mark:
		return t.refuse(c, core.CodeForgotten)
	case c.Seq-s.mark >= s.window:
		return t.refuse(c, core.CodeWindow)
	}
	if r, seen := t.seen(s, c.Seq); seen {
		return r
	}
	return t.once(s, c)
}

// once runs a command that was not seen before and keeps its result, unless a
// claim is its record.
func (t *Twin) once(s *session, c core.Command) core.Result {
	r := t.dated(t.run(s, c))
	r.Seq = c.Seq
	if _, seen := t.seen(s, c.Seq); !seen {
		s.records = append(s.records, record{result: r})
	}
	return r
}

// dated gives a result without a revision of its own that of now.
func (t *Twin) dated(r core.Result) core.Result {
	if r.Revision == 0 {
		r.Revision = t.revision
	}
	return r
}

func (t *Twin) refuse(c core.Command, code core.Code) core.Result {
	return core.Result{Seq: c.Seq, Code: code, Revision: t.revision}
}

// seen finds what a number stands for: a claim as it is now, or a record.
func (t *Twin) seen(s *session, seq uint64) (core.Result, bool) {
	if c := t.claim(s, seq); c != nil {
		return t.claimResult(c), true
	}
	for _, r := range s.records {
		if r.result.Seq == seq {
			return r.result, true
		}
	}
	return core.Result{}, false
}

// open makes the session or refreshes it.
func (t *Twin) open(f core.Frame, c core.Command) core.Result {
	sensible := c.Seq == 0 && c.TTL > 0 && c.TTL <= longest && c.Grace >= 0 && c.Grace <= longest
	s := t.session(f.Session)
	switch {
	case !sensible || f.Session == core.SessionID{}:
		return t.refuse(c, core.CodeInvalid)
	case s != nil:
		return t.reopen(s, c)
	case t.ended(f.Session):
		return t.refuse(c, core.CodeNoSession)
	case above(t.opened(cmp.Or(c.Namespace, "default"))+1, t.cfg.Sessions):
		return t.refuse(c, core.CodeExhausted)
	}
	s = &session{
		id: f.Session, ns: c.Namespace, identity: c.Identity, owner: c.Owner, meta: c.Meta,
		ttl: c.TTL, window: t.windowFor(c.Window), policy: c.Policy, grace: c.Grace,
		deadline: t.now + c.TTL, mark: max(1, f.Mark),
	}
	if s.ns == "" {
		s.ns = "default"
	}
	t.sessions = append(t.sessions, s)
	rev := t.next()
	t.event(s.event(core.VerbOpened))
	return core.Result{Revision: rev, Window: s.window}
}

// opened counts the sessions of a namespace, those too that are being ended.
func (t *Twin) opened(ns string) (n int) {
	for _, s := range t.sessions {
		if s.ns == ns {
			n++
		}
	}
	return n
}

func (t *Twin) reopen(s *session, c core.Command) core.Result {
	if c.Flags&core.Fresh != 0 {
		return t.refuse(c, core.CodeExists)
	}
	if s.identity != c.Identity {
		return t.refuse(c, core.CodePermission)
	}
	t.refresh(s, c.TTL)
	return core.Result{Revision: t.revision, Window: s.window}
}

func (t *Twin) windowFor(asked uint64) uint64 {
	if asked == 0 {
		return t.cfg.Window
	}
	return min(asked, t.cfg.Window)
}

// ended says whether id is of a session that ended within the last ten minutes,
// or whose claims are still being freed.
func (t *Twin) ended(id core.SessionID) bool {
	for _, s := range t.sessions {
		if s.id == id && s.ending {
			return true
		}
	}
	return slices.ContainsFunc(t.gone, func(g tombstone) bool { return g.id == id && t.now < g.until })
}

// endAsAsked ends the session with all that hangs on it, now. The id of one that
// was never seen is refused from now on: its Open may still be under way.
func (t *Twin) endAsAsked(id core.SessionID, s *session) core.Result {
	if s == nil {
		if !t.ended(id) {
			t.gone = append(t.gone, tombstone{id, t.now + remember})
		}
		return core.Result{Revision: t.revision}
	}
	s.asked = true
	t.beginEnd(s, core.VerbEnded)
	t.budget--
	r := core.Result{Revision: t.revision}
	t.walkOn()
	t.settle()
	return r
}

// beginEnd decides the end of a session: from now on it is over, and its id refused.
func (t *Twin) beginEnd(s *session, v core.Verb) {
	s.ending = true
	t.decide(s)
	t.gone = append(t.gone, tombstone{s.id, t.now + remember})
	t.next()
	t.event(s.event(v))
}

func (s *session) event(v core.Verb) core.Event {
	return core.Event{Kind: core.EventSession, Verb: v, Namespace: s.ns, Session: s.id, Owner: s.owner}
}
