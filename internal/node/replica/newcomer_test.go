package replica_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// ask attaches a session of its own over a stream of a node, once more.
func (x *trio) ask(node uint64, number uint64) {
	x.t.Helper()
	if err := x.nodes[node].Receive(x.now, 5, attach(core.SessionID{byte(node)}, number)); err != nil {
		x.t.Fatal(err)
	}
}

// A node that does not lead says so once. A client that asks again over the same stream
// hears from it when another leads: from the new leader its table, from others
// its number.
func TestWhoAsksAgainHearsOfTheNextLeader(t *testing.T) {
	x := newTrio(t)
	for node := uint64(2); node <= 3; node++ {
		x.ask(node, 1)
		if got := x.settle(); len(got) != 1 || got[0].Refusal != session.RefusedNoLeader || got[0].Endpoint != "client 1" {
			t.Errorf("node %d says %+v, want that node 1 leads", node, got)
		}
		x.ask(node, 2)
		if got := x.settle(); len(got) > 0 {
			t.Errorf("node %d says %+v although nothing has changed", node, got)
		}
	}
	x.nodes[1].Transfer(x.now, 2)
	said := map[byte][]session.Message{}
	for _, m := range x.settle() {
		said[m.Session[0]] = append(said[m.Session[0]], m)
	}
	if got := said[2]; len(got) != 1 || got[0].Kind != session.KindTable || got[0].Stream != 2 {
		t.Errorf("the new leader says %+v, want the table", got)
	}
	if got := said[3]; len(got) != 1 || got[0].Endpoint != "client 2" || got[0].Stream != 2 {
		t.Errorf("the other says %+v, want that node 2 leads", got)
	}
}

// A leader that was gone and leads again is news, too: its streams have ended.
func TestWhoAsksAgainHearsThatTheLeaderIsBack(t *testing.T) {
	x := newTrio(t)
	x.ask(2, 1)
	x.settle()
	x.ask(2, 2)
	for range 60 { // node 2 hears of nobody
		x.now += tick
		x.nodes[2].Tick(x.now)
	}
	if x.nodes[2].Status().Leader != 0 {
		t.Fatal("node 2 still follows")
	}
	var got []session.Message
	for range 5 {
		x.nodes[1].Tick(x.now)
		got = append(got, x.settle()...)
	}
	if len(got) != 1 || got[0].Endpoint != "client 1" || got[0].Stream != 2 {
		t.Errorf("node 2 says %+v, want that node 1 leads", got)
	}
}

// Of many that ask again over one stream as many wait as there is room for; the
// others are refused, and nobody is forgotten.
func TestManyWhoAskAgain(t *testing.T) {
	x := newTrio(t)
	const many = 100
	for i := range byte(many) {
		if err := x.nodes[2].Receive(x.now, 5, attach(core.SessionID{i, 1}, 1)); err != nil {
			t.Fatal(err)
		}
	}
	refused := len(x.settle())
	x.nodes[1].Transfer(x.now, 2)
	if served := len(x.settle()); refused < 2 || served < 2 || refused+served != many {
		t.Errorf("of %d, %d are refused at once and %d served by the next leader", many, refused, served)
	}
}

// The server's own attaches never wait: their callers are answered at once.
func TestOwnAttachIsRefusedEachTime(t *testing.T) {
	x := newTrio(t)
	for number := uint64(1); number <= 3; number++ {
		x.nodes[2].Attach(x.now, 5, core.SessionID{1}, number, 1)
		if got := x.settle(); len(got) != 1 || got[0].Refusal != session.RefusedNoLeader {
			t.Errorf("attach %d gets %+v, want a refusal", number, got)
		}
	}
}
