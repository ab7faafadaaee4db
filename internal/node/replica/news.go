package replica

import (
	"cmp"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/node/address"
)

// proposeNews notes what the group does not know of this leader, or of the
// directories of its nodes: addresses that a node which was founded or restored
// alone got later, and the directory with which a new node came first.
func (n *Node) proposeNews() {
	if !n.serving || n.transfer != 0 || n.changing() || n.asked != nil {
		return
	}
	if e, news := n.selfNews(); news {
		n.proposeChange(nobody, Change{Update: []Endpoint{e}})
		return
	}
	if id, is := n.clientOfAnother(); is && n.members.endpoint(n.cfg.ID).Client == "" {
		n.out.Notice = fmt.Errorf("node %d is at %s already, so that clients cannot find node %d, which leads, there: give it an address of its own: holdfast member update %d PEER CLIENT", id, n.cfg.Client, n.cfg.ID, n.cfg.ID)
	}
	for _, e := range n.members.Endpoints {
		if dir := n.met[e.ID].dir; e.Dir == 0 && dir != 0 {
			e.Dir = dir
			n.proposeChange(nobody, Change{Update: []Endpoint{e}})
			return
		}
	}
	n.proposeVoter()
}

// selfNews is this member with what the group does not know yet; false: it knows
// all.
func (n *Node) selfNews() (Endpoint, bool) {
	was := n.members.endpoint(n.cfg.ID)
	if was.ID == 0 {
		return was, false
	}
	e := Endpoint{ID: was.ID, Peer: cmp.Or(was.Peer, n.cfg.Peer), Client: was.Client, Dir: was.Dir, Voter: was.Voter}
	if _, taken := n.clientOfAnother(); e.Client == "" && !taken {
		e.Client = n.cfg.Client
	}
	if !n.cfg.Solo {
		e.Dir = cmp.Or(was.Dir, n.cfg.Dir)
	}
	return e, e != was
}

// clientOfAnother is the member that clients, or nodes, find at the address at which this node says
// that clients find it.
func (n *Node) clientOfAnother() (id uint64, is bool) {
	for _, e := range n.members.Endpoints {
		if c := n.cfg.Client; e.ID != n.cfg.ID && address.Same(e.Client, c) || address.Same(e.Peer, c) {
			return e.ID, true
		}
	}
	return 0, false
}
