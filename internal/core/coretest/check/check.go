// Package check tells whether what the state machine of package core puts out
// keeps the promises that its users rely on, whatever the machine is.
//
// It knows only what clients and watchers see: the commands that were sent, and
// the replies, pushes and events that came back. From these it keeps account of
// the holds that clients may believe in, and complains when two beliefs exclude each
// other, when somebody overtakes, when a token repeats, when something ends too
// early or too late.
package check

import (
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

// Checker follows one history. The zero Checker is ready.
type Checker struct {
	// Rest allows that more was due than one entry ends, so that something may
	// end late.
	Rest bool

	now      int64
	frozen   bool
	sessions []*session
	claims   []*seenClaim
	names    []*name
	arrivals int
	token    uint64 // last granted
	revision uint64 // of the last event; 0: the next one may have any
	entry    twin.Entry
	out      twin.Output
}

// session is what its client was told.
type session struct {
	id       core.SessionID
	ns       string
	deadline int64 // the latest told
	start    int64 // what it was before the commands of this entry
	policy   core.Policy
	alive    bool
	over     bool               // an event told so
	gaveBack bool               // sent something in this entry that gives back
	ended    bool               // as it asked: what it has may be freed later
	revoked  bool               // by another
	used     map[uint64]core.Op // what each number was first used for
	forced   bool               // and its holds were not waited for
}

// seenClaim is a request that was answered granted or queued.
type seenClaim struct {
	s        *session
	seq      uint64
	cmd      core.Command
	wants    []core.Want
	arrival  int
	upgrade  bool
	token    uint64 // last one; 0: waits
	granted  bool   // in this entry
	since    int64
	deadline int64 // told: of a hold; of a wait as asked for
	extended int64 // told by an answer of this entry
	over     bool  // told, or given back
}

// name is its holders, as events tell.
type name struct {
	ns, name string
	limit    int64 // semaphore; 0: not known
	token    uint64
	holds    []hold
}

// hold is one that may believe to have a name, or what keeps it taken.
type hold struct {
	c      *seenClaim
	token  uint64
	mode   core.Mode
	weight int64
	ghost  bool // ownerless, until then
	until  int64
}

// Entry takes the next entry with what it brought about, and returns the first
// broken promise.
func (k *Checker) Entry(e twin.Entry, out twin.Output) error {
	k.entry, k.out = e, out
	k.now = max(k.now, e.Now)
	for _, s := range k.sessions {
		s.gaveBack = false
	}
	for _, c := range k.claims {
		c.granted, c.extended = false, 0
	}
	for _, step := range []func() error{k.kind, k.renewed, k.replies, k.pushes, k.events, k.overtaken, k.late} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// kind follows the entries that are not for commands.
func (k *Checker) kind() error {
	switch k.entry.Kind {
	case core.EntryFreeze:
		k.frozen = true
	case core.EntryUnfreeze:
		k.frozen = false
	case core.EntryRaise:
		k.revision = 0
	case core.EntryForget:
		k.revision, k.sessions, k.claims = 0, nil, nil
		for _, n := range k.names {
			n.holds = nil
		}
	}
	return nil
}

func (k *Checker) session(id core.SessionID) *session {
	for _, s := range slices.Backward(k.sessions) {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (k *Checker) claim(s *session, seq uint64) *seenClaim {
	for _, c := range k.claims {
		if c.s == s && c.seq == seq {
			return c
		}
	}
	return nil
}

func (k *Checker) renewed() error {
	for _, r := range k.out.Renewed {
		if err := k.told(r.Session, r.Now, r.Deadline); err != nil {
			return err
		}
	}
	for _, s := range k.sessions {
		s.start = s.deadline
	}
	return nil
}

// told notes the deadline of a session; it only grows while the session lives.
func (k *Checker) told(id core.SessionID, now, deadline int64) error {
	s := k.session(id)
	switch {
	case now != k.now:
		return fmt.Errorf("reply to %s says now is %d, it is %d", id[:3], now, k.now)
	case s == nil || !s.alive:
		if deadline != 0 && s != nil {
			return fmt.Errorf("session %s has ended, but is told to last until %d", id[:3], deadline)
		}
	case deadline == 0:
		s.alive = false
	case deadline < s.deadline:
		return fmt.Errorf("session %s: deadline went back from %d to %d", id[:3], s.deadline, deadline)
	default:
		s.deadline = deadline
	}
	return nil
}

// replies learns what became of every command.
func (k *Checker) replies() error {
	for i, r := range k.out.Replies {
		f := k.entry.Frames[i]
		for j, res := range r.Results {
			k.result(f, f.Commands[j], res)
		}
		if err := k.told(r.Session, r.Now, r.Deadline); err != nil {
			return err
		}
	}
	return nil
}

func (k *Checker) result(f core.Frame, cmd core.Command, res core.Result) {
	s := k.session(f.Session)
	if s != nil && s.misused(cmd, res) {
		return
	}
	switch cmd.Op {
	case core.OpOpen:
		k.opened(f, cmd, res)
	case core.OpEnd, core.OpRelease, core.OpCancel, core.OpHandOver, core.OpDowngrade:
		if s != nil && res.Code == core.CodeOK {
			s.gaveBack = true
			k.withdrawn(s, cmd)
		}
	case core.OpAcquire, core.OpUpgrade:
		if s != nil && s.alive && (res.Code == core.CodeOK || res.Code == core.CodeQueued) {
			k.answered(s, cmd, res)
		}
	case core.OpExtend:
		if c := k.claim(s, cmd.Target); c != nil && res.Code == core.CodeOK {
			c.extended = res.Deadline
			c.deadline = max(c.deadline, res.Deadline)
		}
	case core.OpRevoke:
		if t := k.session(cmd.Session); t != nil && res.Code == core.CodeOK {
			t.revoked, t.forced = true, t.forced || cmd.Flags&core.Now != 0
		}
	}
}

// misused says whether the number was another command's before: then the result
// is that one's.
func (s *session) misused(cmd core.Command, res core.Result) bool {
	op, ok := s.used[cmd.Seq]
	if ok || cmd.Seq == 0 {
		return ok && op != cmd.Op
	}
	if res.Code != core.CodeNoSession && res.Code != core.CodeForgotten && res.Code != core.CodeWindow {
		s.used[cmd.Seq] = cmd.Op
	}
	return false
}

// withdrawn: a claim that cancels its wait does not wait any more.
func (k *Checker) withdrawn(s *session, cmd core.Command) {
	if c := k.claim(s, cmd.Target); c != nil && cmd.Op == core.OpCancel && c.token == 0 {
		c.over = true
	}
}

func (k *Checker) opened(f core.Frame, cmd core.Command, res core.Result) {
	if s := k.session(f.Session); res.Code != core.CodeOK || s != nil && s.alive {
		return
	}
	s := &session{id: f.Session, ns: cmd.Namespace, policy: cmd.Policy, alive: true, used: map[uint64]core.Op{}}
	if s.ns == "" {
		s.ns = "default"
	}
	k.sessions = append(k.sessions, s)
}

// answered notes a claim the first time it is answered.
func (k *Checker) answered(s *session, cmd core.Command, res core.Result) {
	if k.claim(s, cmd.Seq) != nil || k.joined(s, res.Token) {
		return
	}
	c := &seenClaim{s: s, seq: cmd.Seq, cmd: cmd, wants: cmd.Wants, arrival: k.arrivals}
	k.arrivals++
	if cmd.Op == core.OpUpgrade {
		k.upgradeOf(c)
	}
	if res.Code == core.CodeOK {
		c.grant(res.Token, res.Deadline, k.now)
	} else if cmd.Wait > 0 {
		c.deadline = k.now + cmd.Wait
	}
	k.claims = append(k.claims, c)
}

// upgradeOf gives an upgrade the wants of what it upgrades.
func (k *Checker) upgradeOf(c *seenClaim) {
	c.upgrade = true
	if t := k.claim(c.s, c.cmd.Target); t != nil {
		c.wants = slices.Clone(t.wants)
		c.wants[0].Mode = core.Exclusive
		c.cmd.MinHold, c.cmd.Delay = t.cmd.MinHold, t.cmd.Delay
	}
}

func (c *seenClaim) grant(token uint64, deadline, now int64) {
	c.token, c.deadline, c.granted, c.since = token, deadline, true, now
}

// joined says whether the token is that of a claim that s has already, or gets
// in this entry.
func (k *Checker) joined(s *session, token uint64) bool {
	has := func(c *seenClaim) bool { return c.s == s && c.token == token }
	gets := func(p core.Push) bool { return p.Session == s.id && p.Token == token && p.State == core.ClaimGranted }
	return token != 0 && (slices.ContainsFunc(k.claims, has) || slices.ContainsFunc(k.out.Pushes, gets))
}

// pushes learns what became of claims by themselves.
func (k *Checker) pushes() error {
	for _, p := range k.out.Pushes {
		c := k.claim(k.session(p.Session), p.Seq)
		switch {
		case c == nil:
			return fmt.Errorf("push to %s about %d, which is no claim", p.Session[:3], p.Seq)
		case p.State == core.ClaimGranted && c.token != 0:
			return fmt.Errorf("%s %d is granted again, with token %d after %d", p.Session[:3], p.Seq, p.Token, c.token)
		case p.State == core.ClaimGranted:
			c.grant(p.Token, max(p.Deadline, c.extended), k.now)
		case p.State == core.ClaimRevoked:
			c.deadline = p.Deadline
		case p.State == core.ClaimGone:
			c.over = true
		}
	}
	return nil
}

// overtaken: a claim that waited through this entry for one name alone saw no
// later one take it.
func (k *Checker) overtaken() error {
	if k.handsOver() {
		return nil
	}
	for _, x := range k.claims {
		if x.token != 0 || x.over || x.upgrade || !x.s.alive || x.s.gaveBack || len(x.wants) != 1 || x.wants[0].Kind > core.Election {
			continue
		}
		for _, y := range k.claims {
			if y.granted && !y.upgrade && y.arrival > x.arrival && y.s.ns == x.s.ns && y.wantsName(x.wants[0].Name) {
				return fmt.Errorf("%s %d was granted %s before %s %d, which came earlier",
					y.s.id[:3], y.seq, x.wants[0].Name, x.s.id[:3], x.seq)
			}
		}
	}
	return nil
}

// handsOver says whether the entry hands an election over, past the queue.
func (k *Checker) handsOver() bool {
	for i, f := range k.entry.Frames {
		for j, c := range f.Commands {
			if c.Op == core.OpHandOver && k.out.Replies[i].Results[j].Code == core.CodeOK {
				return true
			}
		}
	}
	return false
}

func (c *seenClaim) wantsName(n string) bool {
	return slices.ContainsFunc(c.wants, func(w core.Want) bool { return w.Name == n })
}

// late: nothing that the entry should have ended is left.
func (k *Checker) late() error {
	if k.Rest {
		return nil
	}
	for _, s := range k.sessions {
		if s.alive && s.policy == core.AtDeadline && s.deadline <= k.now {
			return fmt.Errorf("session %s lives at %d although its deadline was %d", s.id[:3], k.now, s.deadline)
		}
	}
	for _, c := range k.claims {
		if c.token == 0 && !c.over && c.s.alive && !c.s.gaveBack && c.deadline != 0 && c.deadline <= k.now {
			return fmt.Errorf("%s %d still waits at %d although its wait ended at %d", c.s.id[:3], c.seq, k.now, c.deadline)
		}
	}
	return k.lateHolds()
}

func (k *Checker) lateHolds() error {
	for _, n := range k.names {
		for _, h := range n.holds {
			if !h.ghost && h.c.deadline != 0 && h.c.deadline <= k.now {
				return fmt.Errorf("%s is held at %d with token %d although that ended at %d", n.name, k.now, h.token, h.c.deadline)
			}
		}
	}
	return nil
}
