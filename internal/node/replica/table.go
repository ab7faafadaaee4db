package replica

import (
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// tablePiece is how many claims go into one message of a claim table.
const tablePiece = 512

// table is a claim table on its way. It shows one moment; news of later ones
// follow it.
type table struct {
	rows  []core.ClaimRow // what is left to send
	known bool
	piece uint64 // the next
}

// sendTable sends the claim table of a session, after those that its stream has to
// send before.
func (n *Node) sendTable(a *attachment) {
	if !a.over() {
		a.out.tables = append(a.out.tables, a)
		n.sendTables(a.out)
	}
}

// sendTables sends claim tables, a page at a time: a session within its quota may
// have more claims than a stream should have waiting for a slow client.
func (n *Node) sendTables(o *outlet) {
	for len(o.tables) > 0 && !o.more {
		if o.rows >= n.cfg.TableRows {
			o.more = true
			return
		}
		if a := o.tables[0]; a.over() || n.sendPiece(a) {
			o.tables[0] = nil
			o.tables = o.tables[1:]
		}
	}
}

// sendPiece sends the next piece of a claim table; true: it was the last.
func (n *Node) sendPiece(a *attachment) bool {
	t := a.early.table
	if t == nil {
		t = &table{}
		t.rows, t.known = n.machine.Table(a.id)
		a.early.table = t
	}
	k := min(len(t.rows), tablePiece, n.cfg.TableRows)
	m := session.Message{Kind: session.KindTable, Session: a.id, Stream: a.stream, Piece: t.piece, Known: t.known, Rows: t.rows[:k], Last: k == len(t.rows)}
	n.streams.put(a.out, &m)
	a.out.rows += max(k, 1)
	t.rows = t.rows[k:]
	t.piece++
	if m.Last {
		n.tableSent(a)
	}
	return m.Last
}

// tableSent sends what was held back for the claim table.
func (n *Node) tableSent(a *attachment) {
	before := a.early
	a.early = nil
	for _, b := range before.held {
		n.streams.fill(a.out)
		a.out.data = append(a.out.data, b...)
	}
	for i := range before.frames {
		n.enqueue(&before.frames[i])
	}
}

// More sends the next page of claim tables to a stream that has taken the one
// before: what came with StreamFrame.More.
func (n *Node) More(now int64, stream Caller) {
	if o := n.streams.outlets[stream]; o != nil && n.begin(now) {
		o.more = false
		n.sendTables(o)
	}
}

// noteEnded remembers the attached sessions that an entry has ended.
func (n *Node) noteEnded(events []core.Event) {
	s := &n.streams
	for i := range events {
		e := &events[i]
		if e.Kind != core.EventSession || e.Verb != core.VerbEnded && e.Verb != core.VerbExpired {
			continue
		}
		if a := s.attached[e.Session]; a != nil {
			s.ended = append(s.ended, a)
		}
	}
}

// tellEnded tells them so, after all that the entry has for them, and lets go of
// them: there are never more attachments than sessions that live or are about to.
func (n *Node) tellEnded() {
	s := &n.streams
	for _, a := range s.ended {
		if a.over() {
			continue
		}
		s.put(a.out, &session.Message{Kind: session.KindRefused, Session: a.id, Stream: a.stream, Refusal: session.RefusedNoSession, Text: "the session has ended"})
		s.detach(a.id)
	}
	clear(s.ended)
	s.ended = s.ended[:0]
}
