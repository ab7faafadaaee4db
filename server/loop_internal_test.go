package server

import (
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// lonely is the loop of a node that leads alone, driven by hand, on a disk that
// takes no time.
func lonely(t *testing.T) *loop {
	t.Helper()
	node, err := replica.New(replica.Config{ID: 1, MinTTL: 1}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(node, 1, 0)
	for range 60 {
		node.Tick(l.now())
		settled(node)
	}
	if !node.Status().Serving {
		t.Fatal("the node does not lead")
	}
	return l
}

// settled lets a node write all that it wants, and returns its answers.
func settled(node *replica.Node) (answers []replica.Answer) {
	for {
		out := node.Output()
		answers = append(answers, out.Answers...)
		if len(out.Writes) == 0 {
			return answers
		}
		node.Written(0, out.Writes[len(out.Writes)-1].ID)
	}
}

// Watchers are told when the node has jumped over events.
func TestWatchersAreToldOfAJump(t *testing.T) {
	l := lonely(t)
	w, _, err := l.hub.Add(watch.Filter{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	woken := 0
	l.woken[w] = func() { woken++ }
	l.act(replica.Output{})
	if woken != 0 {
		t.Error("a watcher was woken for nothing")
	}
	l.act(replica.Output{Jumped: true})
	if woken != 1 {
		t.Errorf("after a jump the watcher was woken %d times", woken)
	}
}

// A disk that is nearly full is told to the node, and stays so until there is other
// news: nothing new is taken.
func TestNodeHearsOfAFullDisk(t *testing.T) {
	l := lonely(t)
	submit := func() replica.Answer {
		t.Helper()
		f := core.Frame{Session: core.SessionID{7}, Mark: 1, Commands: []core.Command{{Op: core.OpOpen, TTL: 30e9}, {Op: core.OpCount, Seq: 1, Name: "n", Count: core.CountAdd, A: 1}}}
		l.node.Submit(l.now(), 3, core.AppendFrame(nil, &f))
		answers := settled(l.node)
		if len(answers) != 1 {
			t.Fatalf("%d answers", len(answers))
		}
		return answers[0]
	}
	round := func() {
		in, _ := l.take()
		l.feed(&in, false)
	}
	l.post(func(in *inbox) { in.full = true })
	for range 2 {
		round()
		if a := submit(); a.Outcome != replica.NotDone || a.Code != core.CodeFull {
			t.Errorf("with a full disk the node answers %+v", a)
		}
	}
	l.post(func(in *inbox) { in.full = false })
	round()
	if a := submit(); a.Outcome != replica.Done {
		t.Errorf("with room again the node answers %+v", a)
	}
}
