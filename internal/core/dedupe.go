package core

import "slices"

// frame answers the commands of one frame.
func (m *Machine) frame(f *Frame) {
	m.out.Replies = grow(m.out.Replies)
	p := &m.out.Replies[len(m.out.Replies)-1]
	p.Session, p.Attempt, p.Now, p.Deadline, p.Results = f.Session, f.Attempt, m.now, 0, p.Results[:0]
	s := m.session(f.Session)
	if s != nil {
		m.acknowledge(s, f.Mark)
	}
	for i := range f.Commands {
		c := &f.Commands[i]
		p.Results = grow(p.Results)
		r := &p.Results[len(p.Results)-1]
		holders := r.Holders[:0]
		*r = Result{}
		r.Seq, r.Holders = c.Seq, holders
		m.command(f, s, c, r)
		m.settle()
		if r.Revision == 0 {
			r.Revision = m.revision
		}
		if c.Op == OpOpen || c.Op == OpEnd || c.Op == OpRevoke {
			s = m.session(f.Session) // made, or ended
		}
	}
	if s != nil {
		p.Deadline = s.deadline
	}
}

// command runs c, of the session s if there is one, at most once.
func (m *Machine) command(f *Frame, s *session, c *Command, r *Result) {
	switch {
	case c.Op == OpOpen:
		m.open(f, c, r)
	case c.Op == OpEnd:
		m.end(f, c, r)
	case s == nil:
		r.refuse(CodeNoSession, "there is no such session, or it has ended: open a new one")
	case c.Op == OpRevoke && c.Seq == 0 && c.Session == f.Session:
		m.revoke(s, c, r)
	case c.Seq == 0:
		r.refuse(CodeInvalid, "the command has no number: count from 1")
	case c.Seq < s.mark:
		r.refuse(CodeForgotten, "number %d is below the mark %d: its result was given up", c.Seq, s.mark)
	case c.Seq-s.mark >= s.window:
		r.refuse(CodeWindow, "number %d is beyond the window of %d from the mark %d: wait for answers, then raise the mark", c.Seq, s.window, s.mark)
	case m.seen(s, c.Seq, r):
	case m.hoards(s, c):
		r.refuse(CodeWindow, "the session leaves %d bytes of results unacknowledged: take the answers, then raise the mark to %d or above", s.has.kept, s.mark+1)
	default:
		m.once(s, c, r)
	}
}

// maxKept is how many bytes of results a session may leave unacknowledged before it
// is asked to raise its mark.
const maxKept = 16 << 20

// hoards says whether c, which may have a great result, has to wait until the session
// has taken those of others. The first that it waits for is always answered, so that
// it can go on.
func (m *Machine) hoards(s *session, c *Command) bool {
	great := c.Op == OpTxn || c.Op == OpAcquire && c.Flags&Try != 0
	return great && s.has != nil && s.has.kept > maxKept && c.Seq > s.mark && !m.early
}

// once runs a command that was not seen before and keeps its result, unless a
// claim is its record.
func (m *Machine) once(s *session, c *Command, r *Result) {
	m.current, m.made = nil, false
	id := s.id
	if s.revoked && c.Op != OpRelease && c.Op != OpCancel {
		r.refuse(CodeRevoked, "the session was revoked by another: release what it holds, then open a new one")
	} else {
		m.exec(s, c, r)
	}
	m.current = nil
	if m.made || c.Op == OpRevoke && m.session(id) == nil {
		return
	}
	m.settle()
	if r.Revision == 0 {
		r.Revision = m.revision
	}
	m.remember(s, r)
}

func (m *Machine) exec(s *session, c *Command, r *Result) {
	switch c.Op {
	case OpAcquire:
		m.acquire(s, c, r)
	case OpRelease:
		m.release(s, c, r)
	case OpCancel:
		m.cancel(s, c, r)
	case OpExtend:
		m.extend(s, c, r)
	case OpUpgrade:
		m.upgrade(s, c, r)
	case OpDowngrade:
		m.downgrade(s, c, r)
	case OpProclaim:
		m.proclaim(s, c, r)
	case OpHandOver:
		m.handOver(s, c, r)
	case OpForce:
		m.force(s, c, r)
	case OpRevoke:
		m.revoke(s, c, r)
	case OpResize:
		m.resize(s, c, r)
	case OpDelete:
		m.remove(s, c, r)
	case OpCount:
		m.count(s.ns, c, r)
	case OpReserve:
		m.reserveNumbers(s.ns, c, r)
	case OpCountDown:
		m.countDown(s.ns, c, r)
	case OpTxn:
		m.txn(s.ns, c, r)
	case OpLimit:
		m.askLimiter(s.ns, c, r)
	}
}

// seen answers from what a number already stands for: a claim as it is now, or
// a kept result.
func (m *Machine) seen(s *session, seq uint64, r *Result) bool {
	if c := s.has.find(seq); c != nil {
		m.claimResult(c, r)
		return true
	}
	d := s.has.result(seq)
	if d == nil {
		return false
	}
	if d.rest != nil {
		read := reader{b: d.rest}
		read.result(r)
		return true
	}
	r.Code, r.OK, r.Revision, r.Token, r.Deadline, r.Number = d.code, d.ok, d.revision, d.token, d.deadline, d.number
	return true
}

// remember keeps the result of a command until the client's mark has passed it.
func (m *Machine) remember(s *session, r *Result) {
	d := m.newDone(s, r.Seq, r.Code)
	d.ok, d.revision, d.token, d.deadline, d.number = r.OK, r.Revision, r.Token, r.Deadline, r.Number
	if r.Text != "" || r.Window != 0 || len(r.Holders) > 0 || r.Waiting != 0 || len(r.Keys) > 0 || r.Limit != nil {
		m.encoding = appendResult(m.encoding[:0], r)
		d.rest = slices.Clone(m.encoding)
		s.has.kept += len(d.rest)
	}
}

func (m *Machine) newDone(s *session, seq uint64, code Code) *done {
	d := m.dones.alloc(m.epoch)
	d.s, d.seq, d.code, d.revision = s, seq, code, m.revision
	m.dataOf(s).keep(d)
	return d
}

// acknowledge forgets the results below the client's mark.
func (m *Machine) acknowledge(s *session, mark uint64) {
	if mark <= s.mark {
		return
	}
	m.touchSession(s)
	if results := s.has.table(); mark-s.mark >= uint64(len(results)) {
		for _, d := range results {
			m.dropDone(s, d, mark)
		}
	} else {
		for seq := s.mark; seq < mark; seq++ {
			m.dropDone(s, s.has.result(seq), mark)
		}
	}
	s.mark = mark
}

func (m *Machine) dropDone(s *session, d *done, mark uint64) {
	if d == nil || d.seq >= mark {
		return
	}
	m.touchDone(d)
	s.has.results[d.seq&uint64(len(s.has.results)-1)] = nil
	s.has.kept -= len(d.rest)
	m.dones.release(d)
}

func (k *sessionData) result(seq uint64) *done {
	if k == nil || len(k.results) == 0 {
		return nil
	}
	if d := k.results[seq&uint64(len(k.results)-1)]; d != nil && d.seq == seq {
		return d
	}
	return nil
}

// keep files a result. All numbers lie within one window, so that doubling the
// table ends every collision.
func (k *sessionData) keep(d *done) {
	if len(k.results) == 0 {
		k.results = make([]*done, leastResults)
	}
	for {
		slot := &k.results[d.seq&uint64(len(k.results)-1)]
		if *slot == nil {
			*slot = d
			return
		}
		old := k.results
		k.results = make([]*done, 2*len(old))
		for _, o := range old {
			if o != nil {
				k.results[o.seq&uint64(len(k.results)-1)] = o
			}
		}
	}
}
