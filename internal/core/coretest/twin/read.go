package twin

import (
	"cmp"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
)

// told is how many holders a refusal lists.
const told = 16

// held refuses a try and tells the holders in the way, at the first busy name.
func (t *Twin) held(c *claim) core.Result {
	n := t.busy(c)
	r := core.Result{Code: core.CodeHeld}
	for _, o := range t.claims {
		switch {
		case o.holds(n):
			r.Holders = append(r.Holders, o.holder(n))
		case o.standsAt(n) || t.upgrading(o, n):
			r.Waiting++
		}
	}
	slices.SortFunc(r.Holders, func(a, b core.Holder) int { return cmp.Compare(a.Token, b.Token) })
	r.Holders = r.Holders[:min(len(r.Holders), told)]
	c.wants = []core.Want{c.want(n)}
	t.tell(c, core.VerbDenied, core.CodeHeld)
	return r
}

func (c *claim) holder(n *name) core.Holder {
	w := c.want(n)
	h := core.Holder{
		Mode: w.Mode, Weight: w.Weight, Token: c.token, Since: c.since, Deadline: c.deadline,
		Revoked: c.state == core.ClaimRevoked,
	}
	if c.s == nil {
		return h
	}
	h.Session, h.Owner, h.Meta = c.s.id, c.owner, c.s.meta
	if h.Deadline == 0 || h.Deadline > c.s.deadline {
		h.Deadline = c.s.deadline
	}
	return h
}

// Table is the claim table of a session, by number; nil without a session.
func (t *Twin) Table(id core.SessionID) []core.ClaimRow {
	s := t.session(id)
	if s == nil {
		return nil
	}
	rows := []core.ClaimRow{}
	for _, c := range t.bySeq(s) {
		row := core.ClaimRow{Session: id, Seq: c.seq, State: c.state, Token: c.token, Deadline: c.ownDeadline()}
		if c.state == core.ClaimRevoked {
			row.Code = core.CodeRevoked
		}
		rows = append(rows, row)
	}
	for _, r := range s.records {
		if r.gone {
			rows = append(rows, core.ClaimRow{Session: id, Seq: r.result.Seq, State: core.ClaimGone, Code: r.result.Code, Token: r.result.Token})
		}
	}
	slices.SortFunc(rows, func(a, b core.ClaimRow) int { return cmp.Compare(a.Seq, b.Seq) })
	return rows
}

// Due is the earliest time at which a bare entry would change something; false:
// there is none. What the dead still have is due now.
func (t *Twin) Due() (int64, bool) {
	if len(t.decided()) > 0 || !t.frozen && slices.ContainsFunc(t.names, func(n *name) bool { return n.touched }) {
		return t.now, true
	}
	var all []int64
	for _, s := range t.sessions {
		all = append(all, s.due())
	}
	for _, c := range t.claims {
		all = append(all, c.deadline)
	}
	for _, k := range t.keys {
		all = append(all, k.Deadline)
	}
	all = append(all, t.keysDue())
	all = slices.DeleteFunc(all, func(at int64) bool { return at == 0 })
	if len(all) == 0 {
		return 0, false
	}
	return slices.Min(all), true
}

// Names lists what is known by a name, as namespace and name.
func (t *Twin) Names() (all [][2]string) {
	for _, n := range t.names {
		all = append(all, [2]string{n.ns, n.name})
	}
	return all
}

// Inspect tells the holders and the waiters of a name. It fills what the twin
// knows: of the resource Kind, Number and, for a semaphore, Limit and Used; of a
// claim Session, Seq, Mode, Weight, Token, Since, Reserved, Upgrade, Revoked.
func (t *Twin) Inspect(ns, of string) core.ResourceInfo {
	n := t.find(ns, of)
	r := core.ResourceInfo{Namespace: n.ns, Name: n.name, Kind: n.kind}
	switch n.kind {
	case core.Counter, core.Sequence:
		r.Number = n.number
	case core.Latch:
		r.Number = uint64(n.limit)
	case core.Semaphore:
		r.Limit = n.limit
	}
	for _, c := range t.claims {
		switch {
		case c.holds(n):
			r.Holders = append(r.Holders, c.info(n))
			r.Used += c.want(n).Weight
		case c.about(n):
			r.Waiters = append(r.Waiters, c.info(n))
		}
	}
	if n.kind != core.Semaphore {
		r.Used = 0
	}
	slices.SortStableFunc(r.Holders, func(a, b core.ClaimInfo) int { return cmp.Compare(a.Token, b.Token) })
	slices.SortStableFunc(r.Waiters, upgradeFirst)
	return r
}

func (c *claim) info(n *name) core.ClaimInfo {
	w := c.want(n)
	i := core.ClaimInfo{
		Name: n.name, Kind: n.kind, Seq: c.seq, Mode: w.Mode, Weight: w.Weight, Token: c.token, Since: c.since,
		Reserved: c.state == core.ClaimWaiting && c.takes(n), Upgrade: c.target != nil, Revoked: c.state == core.ClaimRevoked,
	}
	if c.s != nil {
		i.Session = c.s.id
	}
	return i
}

func upgradeFirst(a, b core.ClaimInfo) int {
	switch {
	case a.Upgrade == b.Upgrade:
		return 0
	case a.Upgrade:
		return -1
	}
	return 1
}
