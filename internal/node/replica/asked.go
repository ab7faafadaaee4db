package replica

import "github.com/holdfast-io/holdfast/internal/core"

// askedChange is a change that waits for those that stay to answer.
type askedChange struct {
	caller Caller
	change Change
	at     int64
}

// askFirst proposes a change as soon as those on which the group then depends have answered since it was
// asked for: of a node that was heard a moment before, the directory may be what is lost, and it may
// have been taken for another, so that the group would be left with one majority that is silent.
// What depends on nobody is proposed at once.
func (n *Node) askFirst(caller Caller, c Change) {
	n.asked = &askedChange{caller, c, n.now}
	n.proposeAsked()
}

// proposeAsked looks whether they have answered, for an election timeout at most.
func (n *Node) proposeAsked() {
	a := n.asked
	if a == nil {
		return
	}
	n.asked = nil
	if !n.serving {
		n.answer(a.caller, NotDone, nil)
		return
	}
	s := n.standing()
	s.since = a.at + int64(n.cfg.Tick) // what was sent before, and took no longer than a Tick, shows nothing
	switch code, text := s.refuse(a.change); {
	case code == core.CodeOK:
		n.proposeNow(a.caller, a.change)
	case n.now-a.at < int64(n.cfg.electionTimeout()) && s.depends(a.change):
		n.asked = a
	default:
		n.deny(a.caller, code, text)
	}
}

// depends reports whether a change is refused for nothing but those that have not answered yet.
func (s *standing) depends(c Change) bool {
	s.since = 0
	code, _ := s.refuse(c)
	return code == core.CodeOK
}
