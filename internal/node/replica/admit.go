package replica

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/admission"
)

// SetFull tells whether the disk is nearly full. While it is, nothing new is
// taken; what frees something still is, so that the group can get well by
// itself.
func (n *Node) SetFull(full bool) {
	if n.full = full; !full {
		n.mostSessions = 0
	}
}

// Reserved is what namespaces begin with that no client's session may be opened
// in: the server keeps its own state there.
const Reserved = "holdfast."

// forbidden refuses what a client must not ask for over a stream.
func forbidden(f *core.Frame) (core.Code, string) {
	for i := range f.Commands {
		if c := &f.Commands[i]; names(c) && strings.HasPrefix(c.Namespace, Reserved) {
			return core.CodePermission, fmt.Sprintf("namespaces that begin with %q are the server's own: choose another", Reserved)
		}
	}
	return core.CodeOK, ""
}

// names says whether a command may make the namespace that it names: an Open does, and the
// End of a session that is not there, which has to be remembered somewhere.
func names(c *core.Command) bool { return c.Op == core.OpOpen || c.Op == core.OpEnd }

// refusedSpace says why there is to be no such namespace. One of a session that is there is
// not made by its End, which nothing may stand in the way of.
func (n *Node) refusedSpace(f *core.Frame, c *core.Command) (core.Code, string) {
	if !names(c) || n.machine.HasNamespace(c.Namespace) || c.Op == core.OpEnd && n.known(f.Session) {
		return core.CodeOK, ""
	}
	if bad := n.machine.BadNamespace(c.Namespace); bad != "" {
		return core.CodeInvalid, bad
	}
	if now := n.machine.Namespaces(); n.cfg.Namespaces > 0 && now >= n.cfg.Namespaces {
		return core.CodeExhausted, fmt.Sprintf("there are %d namespaces, as many as may be: use one of them, or raise that (serve --max-namespaces)", now)
	}
	return core.CodeOK, ""
}

// MinTTL is the shortest session that Open may ask for. It follows the members and
// not the flags of the node that leads, so that what one leader grants the next does.
func (n *Node) MinTTL() time.Duration {
	switch {
	case n.cfg.MinTTL > 0:
		return n.cfg.MinTTL
	case n.members.alone(n.cfg.ID):
		return time.Second
	}
	return 5 * n.cfg.electionTimeout()
}

// admit refuses a frame that must not enter the log.
func (n *Node) admit(f *core.Frame) (core.Code, string) {
	if since := f.Since(); since > n.machine.Version() {
		return core.CodeUnsupported, n.tooNew(since)
	}
	for i := range f.Commands {
		c := &f.Commands[i]
		if least := n.MinTTL(); c.Op == core.OpOpen && c.TTL < int64(least) {
			return core.CodeInvalid, fmt.Sprintf("a TTL of %s is too short here: a change of leaders alone may take as long; ask for at least %s", time.Duration(c.TTL), least)
		}
		if code, text := n.refusedSpace(f, c); code != core.CodeOK {
			return code, text
		}
		if n.full && n.makesLarger(f, c) {
			return core.CodeFull, fullText
		}
	}
	return core.CodeOK, ""
}

const fullText = "the leader's disk is full: what frees something, keepalives and reads go on; release or delete something, or make room on the disk (serve --reserve, --max-data)"

// newcomers is how many more sessions there may be on a full disk than when the first of
// them came: with the largest metadata they take less than 5 MiB.
const newcomers = 1000

// makesLarger reports whether a command is refused on a full disk: it may make the state
// larger, or a namespace, or a session.
func (n *Node) makesLarger(f *core.Frame, c *core.Command) bool {
	switch {
	case !names(c):
		return grows(c)
	case n.known(f.Session):
		return false
	}
	return !n.mayUse(c.Namespace) || c.Op == core.OpOpen && !opensForMore(f)
}

// mayUse reports whether a full disk takes sessions in a namespace: it is there, or the one that clients use if they
// are not told of another, which is made for the first that comes to read.
func (n *Node) mayUse(namespace string) bool {
	return namespace == "" || namespace == "default" || n.machine.HasNamespace(namespace)
}

// opensForMore reports whether a session is opened for something that a full disk takes: without a session no client
// that comes could read, release or delete anything. All commands of the frame are judged, so one that is no Open frees
// or reads.
func opensForMore(f *core.Frame) bool { return f.Commands[len(f.Commands)-1].Op != core.OpOpen }

// tooMany reports whether an item opens a session, and there are as many as a full disk takes: those that are
// about to be opened count, since a burst of them comes before the first is there.
func (n *Node) tooMany(i *item) bool {
	if !n.full || i.class != admission.Create {
		return false
	}
	there := n.machine.Sessions() + n.waiting.creates
	for _, p := range n.flying {
		there += p.creates
	}
	n.mostSessions = cmp.Or(n.mostSessions, there+newcomers)
	return there >= n.mostSessions
}

// grows reports whether a command of a session that is there may make the state larger. What is
// not listed does.
func grows(c *core.Command) bool {
	switch c.Op {
	case core.OpOpen, core.OpEnd, core.OpRelease, core.OpCancel, core.OpExtend, core.OpDowngrade, core.OpHandOver,
		core.OpForce, core.OpRevoke, core.OpDelete:
		return false
	case core.OpCount:
		return c.Count != core.CountLoad
	case core.OpCountDown:
		return c.Limit != 0
	case core.OpTxn:
		return !frees(c.Then) || !frees(c.Else)
	case core.OpLimit:
		return !asksOnly(c.Ask)
	}
	return true
}

// asksOnly reports whether a limiter is only looked at, or a key of one that is there reset: with
// a rate it would be made.
func asksOnly(a *core.LimitAsk) bool {
	return a == nil || a.Op == core.LimitPeek || a.Op == core.LimitReset && a.Rate.Count == 0
}

// frees reports whether operations only read and delete.
func frees(ops []core.KeyOp) bool {
	for i := range ops {
		if k := ops[i].Kind; k != core.KeyGet && k != core.KeyDelete {
			return false
		}
	}
	return true
}
