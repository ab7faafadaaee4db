package replica

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Where a state is given up, grants that were made on it are not known any more. Their tokens
// must not come again: the revision goes on from beyond them. And their holders believe in
// them for at most a TTL from the last renewal on, which only a leader with that state answers.

// holdersWait is how long an operator waits at most until grants go on. From those with a longer TTL only the
// token protects then.
const holdersWait = time.Minute

// raiseVersion is the first version of groups that raise their revision.
const raiseVersion = 6

// raiseBy is beyond what a state can be ahead that an operator has given up and nobody knows of. Tokens
// have room for some thousand such steps.
const raiseBy = 1 << 40

// waitForHolders is when grants go on that an operator has ordered to go on: a leader waits once in its term.
type waitForHolders struct {
	term  uint64
	until int64
}

// mostRaised is where raising ends: clocks get there in 2112, and what is beyond it is a fault itself, which would
// use up all tokens.
const mostRaised = core.MaxRevision / 2

// raise raises the revision to that of a state which is given up, if the group's is below.
func (n *Node) raise(to uint64) {
	if n.machine.Version() >= raiseVersion && n.leading && to < mostRaised {
		n.orderCheck(kindCore, 0, nobody, &core.Entry{Kind: core.EntryRaise, Revision: to})
	}
}

// heardWant: a node needs a machine, and has given up its own, which had got to a revision.
func (n *Node) heardWant(from, least, revision uint64) {
	if n.serving && n.transfer == 0 && revision > n.machine.Revision() && !n.checking() {
		n.raise(revision)
	}
	n.sendMachine(from, least)
}

// goesOn: an operator has said which state is right, and grants will go on with it, also if the node that has it has yet to
// say what that is. Another check would forget that.
func (n *Node) goesOn() bool { return n.check.ruler != 0 && n.machine.Frozen() }

// goOn ends a freeze by the word of an operator, once no token of the states that were given up can
// come again and nobody believes any more in what they had granted.
func (n *Node) goOn() {
	if to := n.check.from + raiseBy; n.machine.Version() >= raiseVersion && n.machine.Revision() < to && to < mostRaised {
		n.orderCheck(kindCore, 0, nobody, &core.Entry{Kind: core.EntryRaise, Revision: to})
		return
	}
	if n.holders.term != n.currentTerm() {
		wait := min(time.Duration(n.machine.LongestTTL()), holdersWait)
		n.holders = waitForHolders{n.currentTerm(), n.now + int64(wait)}
		n.out.Notice = fmt.Errorf("the state of node %d is right: grants go on in %s, when nobody believes any more in what the other states had granted", n.check.ruler, wait.Round(time.Second))
	}
	if n.now >= n.holders.until {
		n.orderCheck(kindCore, 0, nobody, &core.Entry{Kind: core.EntryUnfreeze})
	}
}
