package script

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

var (
	kinds  = []string{"mutex", "rwmutex", "semaphore", "election", "latch", "barrier", "counter", "sequence", "limiter"}
	codes  = []string{"ok", "queued", "held", "lost", "conflict", "invalid", "notexist", "exhausted", "nosession", "forgotten", "window", "timeout", "canceled", "revoked", "maxhold", "permission", "unavailable", "exists"}
	states = []string{"", "waiting", "granted", "revoked", "gone"}
)

// printLine collects the words of one line of output; what is zero is left out.
type printLine struct{ words []string }

func (l *printLine) add(format string, args ...any) {
	l.words = append(l.words, fmt.Sprintf(format, args...))
}

func (l *printLine) number(name string, n uint64) {
	if n != 0 {
		l.add("%s=%d", name, n)
	}
}

func (l *printLine) text(name, s string) {
	if s != "" {
		l.add("%s=%s", name, s)
	}
}

func (l *printLine) time(name string, t int64) {
	if t != 0 {
		l.add("%s=%s", name, at(t))
	}
}

func (l *printLine) String() string { return strings.Join(l.words, " ") + "\n" }

func at(t int64) string { return time.Duration(t).String() }

// Code is the name of a code.
func Code(c core.Code) string {
	if int(c) < len(codes) {
		return codes[c]
	}
	return fmt.Sprintf("code%d", c)
}

// Print writes everything that an entry brought about, one thing a line. Texts
// of refusals are left out: their wording is free.
func Print(out twin.Output) string {
	var s strings.Builder
	for _, r := range out.Renewed {
		fmt.Fprintf(&s, "%s renewed%s\n", Name(r.Session), until(r.Deadline))
	}
	for _, r := range out.Replies {
		for _, res := range r.Results {
			s.WriteString(result(r, res))
		}
	}
	for _, p := range out.Pushes {
		s.WriteString("push " + Row(p))
	}
	for _, e := range out.Events {
		s.WriteString(event(e))
	}
	return s.String()
}

func until(deadline int64) string {
	if deadline == 0 {
		return " | no session"
	}
	return " | until " + at(deadline)
}

func result(reply core.Reply, r core.Result) string {
	var l printLine
	l.add("%s %d %s", Name(reply.Session), r.Seq, Code(r.Code))
	l.number("token", r.Token)
	l.number("rev", r.Revision)
	l.time("deadline", r.Deadline)
	l.number("n", r.Number)
	if r.OK {
		l.add("true")
	}
	l.number("window", r.Window)
	l.number("waiting", r.Waiting)
	for _, h := range r.Holders {
		l.add("%s", holder(h))
	}
	for _, k := range r.Keys {
		l.add("%s", found(k))
	}
	if r.Limit != nil {
		d, v := &r.Limit.Decision, &r.Limit.Reservation
		l.add("<asked=%d left=%d of=%d retry=%s reset=%s taken=%d until=%s at=%s>", d.Asked, d.Remaining, d.Limit, d.RetryAfter, d.ResetAfter, v.Cost, at(v.Until), at(r.Limit.Now))
	}
	l.add("%s", strings.TrimSpace(until(reply.Deadline)))
	return l.String()
}

func holder(h core.Holder) string {
	var l printLine
	l.add("holder=%s", Name(h.Session))
	l.text("owner", h.Owner)
	l.text("meta", h.Meta)
	claimWords(&l, h.Mode, h.Weight, h.Token)
	l.add("since=%s", at(h.Since))
	l.time("ends", h.Deadline)
	if h.Revoked {
		l.add("revoked")
	}
	return "[" + strings.TrimSpace(l.String()) + "]"
}

func claimWords(l *printLine, m core.Mode, weight int64, token uint64) {
	l.number("token", token)
	if m == core.Shared {
		l.add("shared")
	}
	if weight > 1 {
		l.add("weight=%d", weight)
	}
}

func found(k core.KeyResult) string {
	var l printLine
	l.add("count=%d", k.Count)
	for _, kv := range k.Keys {
		l.add("%s", Key(kv))
	}
	if k.More {
		l.add("more")
	}
	return "{" + strings.TrimSpace(l.String()) + "}"
}

// Key writes a key.
func Key(k core.Key) string {
	var l printLine
	l.add("%s=%q c%d m%d v%d", k.Name, k.Value, k.Created, k.Modified, k.Version)
	if k.Session != (core.SessionID{}) {
		l.add("session=%s", Name(k.Session))
	}
	l.time("ends", k.Deadline)
	return strings.TrimSpace(l.String())
}

// Row writes a push or a row of a claim table.
func Row(p core.Push) string {
	var l printLine
	l.add("%s %d %s", Name(p.Session), p.Seq, states[p.State])
	if p.Code != core.CodeOK {
		l.add("%s", Code(p.Code))
	}
	l.number("token", p.Token)
	l.time("deadline", p.Deadline)
	return l.String()
}

func event(e core.Event) string {
	var l printLine
	l.add("event %d.%d %s:%s", e.Revision, e.Ordinal, e.Kind, e.Verb)
	if e.Namespace != "default" {
		l.add("ns=%s", e.Namespace)
	}
	if e.Name != "" {
		l.add("%s", e.Name)
	}
	if e.Session != (core.SessionID{}) {
		l.add("by %s", Name(e.Session))
	}
	l.text("owner", e.Owner)
	claimWords(&l, e.Mode, e.Weight, e.Token)
	l.text("value", string(e.Value))
	if e.Reason != core.CodeOK {
		l.add("(%s)", Code(e.Reason))
	}
	eventNumbers(&l, e)
	return l.String()
}

func eventNumbers(l *printLine, e core.Event) {
	switch e.Kind {
	case core.EventCounter, core.EventSequence, core.EventLatch, core.EventBarrier:
		l.add("n=%d", e.Number)
	default:
		l.number("n", e.Number)
	}
	if e.Kind == core.EventKV {
		l.add("[%s]", Key(e.Key))
		if e.Prev.Version != 0 {
			l.add("was [%s]", Key(e.Prev))
		}
	}
}
