package script

import (
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

// Lines writes an entry as the block of a script that makes it, so that a
// history that was found by chance can be kept as a story.
func Lines(e twin.Entry) string {
	var s strings.Builder
	fmt.Fprintf(&s, "batch\nat %s\n", at(e.Now))
	if e.Kind != core.EntryCommands {
		fmt.Fprintf(&s, "%s %d\n", entryKinds[e.Kind], uint64(e.Seconds)+e.Revision)
	}
	for _, r := range e.Renewals {
		l := printLine{}
		l.add("keep %s", Name(r.Session))
		l.time("ttl", r.TTL)
		s.WriteString(l.String())
	}
	for i, f := range e.Frames {
		if i > 0 && e.Frames[i-1].Session == f.Session {
			s.WriteString("frame\n")
		}
		for j, c := range f.Commands {
			l := commandLine(f.Session, c)
			if j == 0 {
				l.number("mark", f.Mark)
			}
			s.WriteString(l.String())
		}
	}
	return s.String()
}

var entryKinds = []string{"", "forget", "freeze", "unfreeze", "", "raise"}

func commandLine(id core.SessionID, c core.Command) *printLine {
	l := &printLine{}
	l.add("%s %s", Name(id), verbs[c.Op])
	switch c.Op {
	case core.OpOpen:
		openWords(l, c)
	case core.OpEnd:
		return l
	case core.OpAcquire:
		acquireWords(l, c)
	case core.OpTxn:
		txnWords(l, c)
	default:
		otherWords(l, c)
	}
	if c.Op != core.OpOpen {
		l.add("seq=%d", c.Seq)
	}
	return l
}

var verbs = map[core.Op]string{
	core.OpOpen: "open", core.OpEnd: "end", core.OpAcquire: "acquire", core.OpRelease: "release", core.OpCancel: "cancel",
	core.OpExtend: "extend", core.OpUpgrade: "upgrade", core.OpDowngrade: "downgrade", core.OpProclaim: "proclaim",
	core.OpHandOver: "handover", core.OpForce: "force", core.OpRevoke: "revoke", core.OpResize: "resize",
	core.OpDelete: "delete", core.OpCount: "count", core.OpReserve: "reserve", core.OpCountDown: "countdown", core.OpTxn: "txn", core.OpLimit: "limit",
}

func openWords(l *printLine, c core.Command) {
	l.time("ttl", c.TTL)
	l.text("ns", c.Namespace)
	l.text("id", c.Identity)
	l.text("owner", c.Owner)
	l.text("meta", c.Meta)
	l.number("window", c.Window)
	l.text("policy", policies[c.Policy])
	l.time("grace", c.Grace)
	if c.Flags&core.Fresh != 0 {
		l.add("fresh")
	}
}

var policies = []string{"", "next", "never"}

func acquireWords(l *printLine, c core.Command) {
	for _, w := range c.Wants {
		l.add("%s", wantWord(w))
	}
	if c.Flags&core.Try != 0 {
		l.add("try")
	}
	if c.Flags&core.Reentrant != 0 {
		l.add("reentrant")
	}
	l.time("wait", c.Wait)
	l.time("max", c.MaxHold)
	l.time("min", c.MinHold)
	l.time("delay", c.Delay)
	l.text("value", string(c.Value))
	l.text("owner", c.Owner)
}

// wantWord marks a mode that its kind does not have with !.
func wantWord(w core.Want) string {
	letter := "?mrselb"[w.Kind : w.Kind+1]
	if w.Kind == core.RWMutex && w.Mode == core.Exclusive {
		letter = "w"
	}
	s := letter + ":" + w.Name
	if w.Mode != modeOf(letter) {
		s = letter + "!:" + w.Name
	}
	if w.Weight != 0 {
		s += fmt.Sprintf("*%d", w.Weight)
	}
	if w.Limit != 0 {
		s += fmt.Sprintf("/%d", w.Limit)
	}
	return s
}

func modeOf(letter string) core.Mode {
	if strings.Contains("rslb", letter) {
		return core.Shared
	}
	return core.Exclusive
}

// otherWords writes the fields that the remaining commands share.
func otherWords(l *printLine, c core.Command) {
	switch c.Op {
	case core.OpRelease:
		if c.Target == 0 && c.Name != "" {
			l.add("%s token=%d", c.Name, c.Token)
			return
		}
		l.add("%d", c.Target)
	case core.OpForce:
		l.add("%s token=%d", c.Name, c.Token)
	case core.OpRevoke:
		l.add("%s", Name(c.Session))
	case core.OpResize:
		l.add("%s %d", c.Name, c.Limit)
	case core.OpDelete:
		l.add("%s %s", kinds[c.Kind-1], c.Name)
	case core.OpCount:
		l.add("%s", countWords(c))
	case core.OpLimit:
		limitWords(l, c)
	case core.OpReserve:
		l.add("%s %d", c.Name, c.A)
		l.number("start", c.B)
	case core.OpCountDown:
		l.add("%s %d", c.Name, c.A)
		l.number("limit", uint64(c.Limit))
	default:
		l.add("%d", c.Target)
	}
	l.time("wait", c.Wait)
	l.time("max", c.MaxHold)
	l.text("owner", c.Owner)
	l.text("value", string(c.Value))
	if c.Flags&core.Now != 0 {
		l.add("now")
	}
}

var counts = []string{"load", "add", "sub", "store", "swap", "addall"}

func countWords(c core.Command) string {
	s := c.Name + " " + counts[c.Count]
	if c.Count != core.CountLoad {
		s += fmt.Sprint(" ", c.A)
	}
	if c.Count == core.CountSwap {
		s += fmt.Sprint(" ", c.B)
	}
	if c.Unsigned {
		s += " unsigned"
	}
	return s
}

var asks = []string{"take", "peek", "settle", "return", "reset", "setrate"}

// limitWords writes name, key, operation and cost, the rate as algorithm, count, time
// and burst, and a reservation by its fields.
func limitWords(l *printLine, c core.Command) {
	a := c.Ask
	l.add("%s %s %s %d", c.Name, a.Key, asks[a.Op], a.Cost)
	l.time("within", a.Wait)
	if a.Rate.Count != 0 {
		l.add("rate=%d/%d/%s/%d", a.Rate.Algorithm, a.Rate.Count, a.Rate.Per, a.Rate.Burst)
	}
	if v := a.Reservation; v.Epoch != 0 {
		l.add("of=%d/%d/%d/%d/%d", v.Cost, v.At, v.Until, v.Given, v.Epoch)
	}
}
