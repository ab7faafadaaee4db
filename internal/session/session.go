package session

import (
	"math"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Never is the time of [Session.Wake] when nothing has to happen.
const Never = math.MaxInt64

// DefaultWindow is how many commands a session asks to have unanswered at a
// time; the server grants as many or fewer.
const DefaultWindow = 1024

// Config says what session to open.
type Config struct {
	// ID is chosen at random by the caller and never used again.
	ID        core.SessionID
	Namespace string // "" is "default"
	Identity  string // of the client that may use it; servers fill in their own
	Owner     string
	Meta      string
	// TTL is how long the session outlives its last renewal.
	TTL    time.Duration
	Policy core.Policy
	Grace  time.Duration
	// Manual: it is renewed by Keep only.
	Manual bool
	// Window is how many commands may be unanswered; 0: [DefaultWindow].
	Window uint64
	// Merge lets Adds to one counter that are sent together be one command. A
	// watcher of the counter sees their sum.
	Merge bool
	// Seed spreads its keepalives and retries.
	Seed uint64
}

type life uint8

const (
	alive  life = iota
	untold      // dead for the client; the server has yet to be told
	gone
)

// Session is one client session. It is not safe for concurrent use. Actions
// returned are valid until its next method call.
type Session struct {
	cfg    Config
	ttl    int64
	life   life
	opened bool  // the server has answered that it exists
	spoke  bool  // something was sent, so the server may know it
	begun  int64 // when the first frame was sent that may have opened it; 0: none may
	unsure int   // how many may have
	spread jitter
	now    int64
	out    []Action

	clock  clock
	beat   beat
	link   uplink
	ending ending

	calls    numbered[*Call] // unanswered, by number; nil: answered or given up
	unsent   uint64          // the lowest number that may be unsent
	inflight int             // sent and unanswered
	window   uint64
	claims   map[uint64]*Call // waiting and granted, by number
	settling map[uint64]int   // how many releases and cancels in calls settle a number
	unmapped []*Call          // granted, but held back until an anchor comes
	keeps    []*Call          // waiting for a renewal
	doubts   bool             // a new table is needed, see settle

	frame core.Frame
	leads []lead // of the frame under construction
	reply core.Reply
	buf   []byte
}

// New returns a session that is not opened yet: that happens on its first
// stream.
func New(cfg Config) *Session {
	if cfg.Window == 0 {
		cfg.Window = DefaultWindow
	}
	s := &Session{cfg: cfg, ttl: int64(cfg.TTL), window: cfg.Window, claims: map[uint64]*Call{}, settling: map[uint64]int{}, spread: jitter(cfg.Seed)}
	s.calls.base, s.unsent, s.link.attempts.base = 1, 1, 1
	return s
}

// ID is the session's name.
func (s *Session) ID() core.SessionID { return s.cfg.ID }

// Alive reports whether the session may still be believed in, as of its last
// method call.
func (s *Session) Alive() bool { return s.life == alive }

// Opened reports whether the server has answered that the session exists.
func (s *Session) Opened() bool { return s.opened }

// Deadline is when the session ends unless it is renewed; false: the server has
// not answered yet.
func (s *Session) Deadline() (int64, bool) { return s.clock.deadline, s.clock.anchored }

// begin starts every method: the clock first, so that nothing that arrives
// after the deadline is looked at by a living session.
func (s *Session) begin(now int64) {
	s.now = max(s.now, now)
	s.out = s.out[:0]
	if s.life == alive && s.now >= s.ends() {
		s.endNow(Expired, core.CodeLost, s.whyExpired())
	}
}

// unansweredFor bounds how long an Open is sent again that was never answered: half the
// time for which a server knows the id of an ended session. Beyond that it would open the
// session anew, and do a second time what came with the first Open.
const unansweredFor = int64(5 * time.Minute)

// ends is when the session is over unless something is heard before.
func (s *Session) ends() int64 {
	switch {
	case s.clock.anchored:
		return s.clock.deadline
	case s.begun != 0:
		return s.begun + unansweredFor
	}
	return Never
}

func (s *Session) whyExpired() string {
	if s.clock.anchored {
		return "not renewed in time"
	}
	return "the server has not answered since the session was to be opened"
}

func (s *Session) do(a Action) { s.out = append(s.out, a) }

// Submit takes a command to be sent by the next Flush. A Release ends the
// client's belief in the hold at once. On a dead session the call is NotDone at
// once.
func (s *Session) Submit(now int64, c *Call) []Action {
	s.begin(now)
	if s.life != alive {
		c.Outcome, c.state = NotDone, over
		s.do(Action{Kind: Done, Call: c})
		return s.out
	}
	s.submit(c)
	return s.out
}

func (s *Session) submit(c *Call) {
	c.Command.Seq = s.calls.push(c)
	c.state, c.maxHold, c.delays = unsent, c.Command.MaxHold, c.Command.Delay > 0
	if c.settles() {
		s.settling[c.Command.Target]++
	}
	target := s.claims[c.Command.Target]
	if target == nil {
		return
	}
	switch c.Command.Op {
	case core.OpRelease:
		s.forget(target)
	case core.OpUpgrade:
		c.base, target.unsettled = target, true
		c.maxHold, c.delays = target.maxHold, target.delays
	}
}

// forget takes a claim off the table without telling anyone.
func (s *Session) forget(c *Call) {
	delete(s.claims, c.Command.Seq)
	c.state = over
}

// Abandon says that nobody waits for c any more; there will be no Done for it.
// A claim is withdrawn in the background, also if it has been granted
// meanwhile; any other command that was sent is carried to its answer. NotDone
// is returned if it was never sent, else Unknown. A call that is Done is left
// alone: release what it made.
func (s *Session) Abandon(now int64, c *Call) (Outcome, []Action) {
	s.begin(now)
	switch {
	case c.state >= granted || s.life != alive:
		return c.Outcome, s.out
	case c.Command.Seq == 0:
		return s.abandonKeep(c), s.out
	case c.sends == 0:
		s.remove(c)
		s.settle(c)
		c.state = over
		return NotDone, s.out
	}
	if c.claims() {
		s.withdraw(c)
	}
	c.Tag = abandoned{}
	return Unknown, s.out
}

// abandoned is the Tag of a call that nobody waits for.
type abandoned struct{}

// withdraw replaces a claim by its cancel.
func (s *Session) withdraw(c *Call) {
	s.remove(c)
	delete(s.claims, c.Command.Seq)
	c.state = over
	s.cancel(c.Command.Seq, c.base)
}

// cancel settles a number that the session believes to be over or wants to be;
// base is the shared hold if that number is an upgrade of it.
func (s *Session) cancel(seq uint64, base *Call) {
	c := &Call{Tag: abandoned{}, base: base}
	c.Command.Op, c.Command.Target = core.OpCancel, seq
	s.submit(c)
}

// remove takes an unanswered call out of the queue.
func (s *Session) remove(c *Call) {
	slot := s.calls.at(c.Command.Seq)
	if slot == nil || *slot != c {
		return
	}
	if c.state == sent {
		s.inflight--
	}
	*slot = nil
	if c.settles() {
		s.settled(c.Command.Target)
	}
	for len(s.calls.all()) > 0 && s.calls.all()[0] == nil {
		s.calls.drop()
	}
}

// settles: it ends a claim, whatever became of that.
func (c *Call) settles() bool {
	return c.Command.Op == core.OpRelease || c.Command.Op == core.OpCancel
}

// settled notes that a command which settles a number is not under way any more.
func (s *Session) settled(seq uint64) {
	if s.settling[seq]--; s.settling[seq] <= 0 {
		delete(s.settling, seq)
	}
}

// finish ends a call for its caller.
func (s *Session) finish(c *Call, o Outcome) {
	c.Outcome = o
	if c.state != granted {
		c.state = over
	}
	if _, nobody := c.Tag.(abandoned); !nobody {
		s.do(Action{Kind: Done, Call: c})
	}
}

// settle ends the doubt about the shared hold under an upgrade that was not
// granted: it is there unless a table said otherwise meanwhile, and then a new
// table has to say it.
func (s *Session) settle(c *Call) {
	b := c.base
	if b == nil {
		return
	}
	b.unsettled = false
	s.doubts = s.doubts || b.doubted && b.state != over
	b.doubted = false
}
