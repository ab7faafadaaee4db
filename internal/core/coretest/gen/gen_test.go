package gen_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/gen"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

// TestSameSeed: a seed is its history.
func TestSameSeed(t *testing.T) {
	for seed := range uint64(20) {
		one, two := gen.New(seed), gen.New(seed)
		for i := range 50 {
			if e1, e2 := one.Next(), two.Next(); !reflect.DeepEqual(e1, e2) {
				t.Fatalf("seed %d, entry %d: %+v, then %+v", seed, i, e1, e2)
			}
		}
	}
}

// covered counts what histories have come to.
type covered struct {
	commands map[string]int // that were answered with CodeOK or CodeQueued
	codes    map[core.Code]int
	verbs    map[core.Verb]int
	states   map[core.ClaimState]int
	// The most holders and waiters of a name, claims of a session and weight of a hold.
	holders, waiters, claims int
	weight                   int64
}

// ops are the commands by their names, in order of core.Op.
var ops = []string{"", "open", "end", "acquire", "release", "cancel", "extend", "upgrade", "downgrade", "proclaim", "hand over",
	"force", "revoke", "resize", "delete", "count", "reserve", "count down", "txn", "limit"}

var (
	countOps = []string{"load", "add", "sub", "store", "swap", "add all"}
	limitOps = []string{"take", "peek", "settle", "return", "reset", "set rate"}
	keyOps   = []string{"get key", "put key", "delete key"}
)

// command counts one with its answer.
func (n *covered) command(c *core.Command, r *core.Result) {
	n.codes[r.Code]++
	if r.Code != core.CodeOK && r.Code != core.CodeQueued {
		return
	}
	n.commands[ops[c.Op]]++
	switch c.Op {
	case core.OpCount:
		n.commands[countOps[c.Count]]++
	case core.OpLimit:
		n.commands[limitOps[c.Ask.Op]]++
	case core.OpTxn:
		done := c.Then
		if !r.OK {
			done = c.Else
		}
		for _, o := range done {
			n.commands[keyOps[o.Kind]]++
		}
	}
}

func (n *covered) entry(e *twin.Entry, out *twin.Output) {
	for i := range out.Replies {
		for j := range out.Replies[i].Results {
			n.command(&e.Frames[i].Commands[j], &out.Replies[i].Results[j])
		}
	}
	for _, p := range out.Pushes {
		n.codes[p.Code]++
		n.states[p.State]++
	}
	for _, e := range out.Events {
		n.verbs[e.Verb]++
		if e.Verb == core.VerbAcquired {
			n.weight = max(n.weight, e.Weight)
		}
	}
}

// size looks how much a history has left at once.
func (n *covered) size(tw *twin.Twin) {
	of := map[core.SessionID]int{}
	for _, name := range tw.Names() {
		r := tw.Inspect(name[0], name[1])
		n.holders, n.waiters = max(n.holders, len(r.Holders)), max(n.waiters, len(r.Waiters))
		for _, c := range r.Holders {
			of[c.Session]++
			n.claims = max(n.claims, of[c.Session])
		}
	}
}

// TestReaches: the histories get to where it matters: every command, done; every code,
// every verb, every state; more holders and claims than a list is good for, and weights up to the
// greatest.
func TestReaches(t *testing.T) {
	n := &covered{commands: map[string]int{}, codes: map[core.Code]int{}, verbs: map[core.Verb]int{}, states: map[core.ClaimState]int{}}
	for seed := range uint64(400) {
		g, tw := gen.New(seed), twin.New(twin.Config{Budget: 10_000, Window: 1024, Waiters: 3 + int(seed%2)*100})
		for i := range 100 {
			e := g.Next()
			out := tw.Apply(e)
			g.Observe(out)
			n.entry(&e, &out)
			if i%5 == 0 {
				n.size(tw)
			}
		}
	}
	t.Logf("proof: commands %v", n.commands)
	t.Logf("proof: codes %v, verbs %v, states %v", n.codes, n.verbs, n.states)
	t.Logf("proof: at most %d holders and %d waiters of a name, %d holds of a session, a weight of %d", n.holders, n.waiters, n.claims, n.weight)
	for _, c := range slices.Concat(ops[1:], countOps, limitOps, keyOps) {
		if n.commands[c] < 20 {
			t.Errorf("%q is done %d times", c, n.commands[c])
		}
	}
	for c := core.CodeOK; c <= core.CodeExists; c++ {
		if n.codes[c] < 5 {
			t.Errorf("code %d is reached %d times", c, n.codes[c])
		}
	}
	for v := core.VerbAcquired; v <= core.VerbDelete; v++ {
		if n.verbs[v] < 20 {
			t.Errorf("%s is reached %d times", v, n.verbs[v])
		}
	}
	for s := core.ClaimGranted; s <= core.ClaimGone; s++ {
		if n.states[s] < 50 {
			t.Errorf("state %d is pushed %d times", s, n.states[s])
		}
	}
	if n.holders < 40 || n.waiters < 40 || n.claims < 30 || n.weight < math.MaxInt64 {
		t.Errorf("the histories stay small: %d holders and %d waiters of a name, %d holds of a session, a weight of %d", n.holders, n.waiters, n.claims, n.weight)
	}
}

func ExampleGen() {
	g, tw := gen.New(1), twin.New(twin.Config{Budget: 100, Window: 100, Waiters: 100})
	for range 3 {
		g.Observe(tw.Apply(g.Next()))
	}
	fmt.Println(tw.Revision() > 0)
	// Output: true
}
