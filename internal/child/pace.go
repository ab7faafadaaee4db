package child

import "time"

// action is what has to be done to the command now.
type action uint8

const (
	leave action = iota
	terminate
	kill
)

// maxMargin is the most that a command is killed before its deadline.
const maxMargin = 250 * time.Millisecond

// glance is how often the clock is looked at: timers stand still while the
// machine is suspended.
const glance = time.Second

// pace decides when a command has to end. It has no clock: times come in.
type pace struct {
	grace  time.Duration // from SIGTERM to SIGKILL, at most
	margin time.Duration // from SIGKILL to the deadline
	killAt time.Time     // zero: it may go on
	told   bool          // SIGTERM was sent
}

// newPace takes the grace that was asked for and the time to the deadline at the
// beginning. The grace is at most a quarter of it, so that a hold which is
// renewed every third of it, and misses a renewal or two, ends nobody. The margin is for the
// end of a killed group, which takes its time however short the grace is.
func newPace(grace, left time.Duration, bounded bool) pace {
	if !bounded {
		return pace{grace: grace}
	}
	left = max(left, 0)
	return pace{grace: min(grace, left/4), margin: min(left/16, maxMargin)}
}

// notice is how long before the deadline the command is told to end: the grace, in which the
// margin is, unless that leaves nothing of it.
func (p *pace) notice() time.Duration { return max(p.grace, p.margin+min(p.grace, p.margin)) }

// due reports that the command has to end.
func (p *pace) due(s state) bool { return s.over || s.bounded && s.left <= p.notice() }

// state is what is known of a hold.
type state struct {
	over    bool          // it is lost
	bounded bool          // it has a deadline
	left    time.Duration // to the deadline
}

// look says what to do now, and when to look again at the latest.
func (p *pace) look(now time.Time, s state) (do action, again time.Duration) {
	if p.due(s) {
		p.endBy(now.Add(p.room(s)))
	}
	if p.killAt.IsZero() {
		return leave, p.pause(s)
	}
	left := p.killAt.Sub(now)
	switch {
	case left <= 0:
		return kill, glance
	case p.told:
		return leave, min(left, glance)
	}
	p.told = true
	return terminate, min(left, glance)
}

// endBy moves the time of the SIGKILL, only to an earlier one.
func (p *pace) endBy(at time.Time) {
	if p.killAt.IsZero() || at.Before(p.killAt) {
		p.killAt = at
	}
}

// room is how long the command may take to end. Without a deadline nothing tells
// the holder of the name after a loss: there is none.
func (p *pace) room(s state) time.Duration {
	if !s.bounded {
		return 0
	}
	return max(0, min(p.grace, s.left-p.margin))
}

// pause is half of what is left until the command would have to be told, so that
// a deadline that moves is seen in time.
func (p *pace) pause(s state) time.Duration {
	if !s.bounded {
		return glance
	}
	return min(max((s.left-p.notice())/2, time.Millisecond), glance)
}

// hurry has a command that was told to end killed after the grace.
func (p *pace) hurry(now time.Time) {
	p.told = true
	p.endBy(now.Add(p.grace))
}
