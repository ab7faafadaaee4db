package sim

import (
	"fmt"
	"slices"
	"time"
)

// whole is how long the members may need after the healing until each is what it is to be:
// a node that was let in last may have to be sent a snapshot, which takes seconds with slow
// pieces, and a second one if the first was damaged or came too late.
const whole = 40 * second

// mend lets time pass until the group is whole, in a run with operators.
func (c *cluster) mend() {
	began := c.now
	for c.opts.Operators && c.failed == "" && c.now < began+whole && c.broken() {
		c.run(c.now + second)
	}
	c.res.Whole = time.Duration(c.now - began)
}

func (c *cluster) broken() bool {
	l := c.leader()
	return l == nil || c.waits(l) != nil || c.unfinished(l) != ""
}

// unfinished is what the members still have to become: no change stays half done, and a node
// that is to vote, and runs, does.
func (c *cluster) unfinished(l *node) string {
	m := l.replica.Status().Members
	if out := m.Conf.GetVotersOutgoing(); len(out) > 0 {
		return fmt.Sprintf("a change of the members is not complete: %d voted before it", out)
	}
	for _, e := range m.Endpoints {
		n := c.node(e.ID)
		if e.Voter && slices.Contains(m.Conf.GetLearners(), e.ID) && n != nil && n.up && n.addr == e.Client {
			return fmt.Sprintf("node %d, which is to vote, does not", e.ID)
		}
	}
	return ""
}
