package replica

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"
)

// reads are linearizable reads. One question to the quorum at a time serves all
// that wait; raft drops questions silently when leaders change, so it is asked
// again after an election timeout.
type reads struct {
	waiting []reader // not yet asked for
	asked   []reader // the question is out
	ready   []reader // answered; wait for the machine to be there
	number  uint64   // of the question
	ticks   int      // since it was asked
	index   uint64   // what the machine must have applied
}

// reader is what reads: a caller, or a session that attaches.
type reader struct {
	caller Caller
	attach *attachment
}

// Read asks for a linearizable look at the machine: the caller will be in
// [Output.Reads], or answered NotDone if this node cannot tell.
func (n *Node) Read(now int64, caller Caller) {
	if !n.begin(now) || !n.leading || n.healing != nil {
		n.answer(caller, NotDone, nil)
		return
	}
	n.reads.waiting = append(n.reads.waiting, reader{caller: caller})
	n.ask()
	n.process()
}

// ask puts the question. None is put before this leader has applied an entry of
// its own term: a single voter would answer with a commit index that lags behind
// what it acknowledged before a crash.
func (n *Node) ask() {
	r := &n.reads
	if !n.serving || len(r.asked) > 0 || len(r.waiting) == 0 || len(r.ready) > 0 {
		return
	}
	r.asked, r.waiting = r.waiting, nil
	n.question()
}

func (n *Node) question() {
	n.reads.number++
	n.reads.ticks = 0
	n.raft.ReadIndex(binary.LittleEndian.AppendUint64(nil, n.reads.number))
}

// tickReads asks again what was not answered for an election timeout.
func (n *Node) tickReads() {
	n.ask()
	if len(n.reads.asked) == 0 {
		return
	}
	if n.reads.ticks++; n.reads.ticks >= n.cfg.ElectionTicks {
		n.question()
	}
}

// confirm takes raft's answer to the newest question.
func (r *reads) confirm(rs raft.ReadState) {
	if len(rs.RequestCtx) != 8 || binary.LittleEndian.Uint64(rs.RequestCtx) != r.number || len(r.asked) == 0 {
		return
	}
	r.index = rs.Index
	r.ready, r.asked = r.asked, nil
}

// wakeReads lets the confirmed readers look once the machine has applied what
// they may have heard of.
func (n *Node) wakeReads() {
	r := &n.reads
	if len(r.ready) == 0 || n.applied < r.index {
		return
	}
	ready := r.ready
	r.ready = nil
	for _, x := range ready {
		if x.attach != nil {
			n.sendTable(x.attach)
			continue
		}
		n.out.Reads = append(n.out.Reads, x.caller)
	}
	n.ask()
}

// refuseReads answers all that wait to read: this node does not lead.
func (n *Node) refuseReads() {
	r := &n.reads
	for _, list := range [][]reader{r.waiting, r.asked, r.ready} {
		for _, x := range list {
			if x.attach == nil {
				n.answer(x.caller, NotDone, nil)
			}
		}
	}
	*r = reads{number: r.number}
}
