// Package admission lets the owner of a bounded queue decide what it still takes
// when that fills: what keeps or gives back goes before what takes, that before
// what is new, and that before what only looks. So an overloaded node sheds the
// work that nobody depends on yet, and loses no session that is alive.
//
//	if wait, ok := (admission.Room{Used: 900, Limit: 1000}).Takes(admission.Grant); !ok {
//		return fmt.Errorf("busy: come back in %s", wait)
//	}
package admission

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Class is how important something is under overload; the least goes first.
type Class uint8

// The classes.
const (
	Keep   Class = iota // keepalives, and whatever gives something back
	Grant               // what takes or changes something, on a session that is there
	Create              // new sessions, and all that comes with them
	List                // what only looks
)

func (c Class) String() string { return [...]string{"keep", "grant", "create", "list"}[c] }

// shares are the eighths of a queue that a class may fill. Each class finds room
// where all below it are refused.
var shares = [...]int{Keep: 8, Grant: 6, Create: 5, List: 4}

// waits are how long a refused caller should wait: the least important comes back
// last.
var waits = [...]time.Duration{
	Keep: 100 * time.Millisecond, Grant: 200 * time.Millisecond, Create: 500 * time.Millisecond, List: time.Second,
}

// Room is how much of a bounded queue is used, in any unit.
type Room struct{ Used, Limit int }

// Takes decides whether one more of a class is taken, of which Used does not know
// yet; if not, wait is when to come back. What is taken of a class would be taken
// of every class above it.
func (r Room) Takes(c Class) (wait time.Duration, ok bool) {
	if r.Used >= r.Limit/8*shares[c]+r.Limit%8*shares[c]/8 {
		return waits[c], false
	}
	return 0, true
}

// Least is the smallest limit with which an empty queue takes something of every class.
const Least = 2

// OfFrame is the class of a frame: that of its most important command, since a
// frame is taken as a whole. One that opens a session which is not there is
// Create whatever follows: nothing of it can happen before. An Open of one that is
// there is a keepalive only by itself: plain calls send one before every command.
func OfFrame(f *core.Frame, known func(core.SessionID) bool) Class {
	best := List
	for i := range f.Commands {
		c := &f.Commands[i]
		if c.Op == core.OpOpen && !known(f.Session) {
			return Create
		}
		if c.Op != core.OpOpen || len(f.Commands) == 1 {
			best = min(best, of(c))
		}
	}
	return best
}

// of is the class of a command on a session that is there.
func of(c *core.Command) Class {
	switch c.Op {
	case core.OpOpen, core.OpEnd, core.OpRelease, core.OpCancel, core.OpExtend, core.OpDowngrade, core.OpHandOver, core.OpForce, core.OpRevoke:
		return Keep
	}
	return Grant
}
