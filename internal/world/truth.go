package world

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// truth is what happened: what a node applied first, whichever node it was.
type truth struct {
	w *World

	mu    sync.Mutex
	log   []core.Event
	names map[string]*holders
	ended map[core.SessionID]bool
}

// holders are those of one name, as the events tell.
type holders struct {
	token uint64
	now   []core.Event // their grants
}

func newTruth(w *World) *truth {
	return &truth{w: w, names: map[string]*holders{}, ended: map[core.SessionID]bool{}}
}

func place(e *core.Event) watch.Position {
	return watch.Position{Revision: e.Revision, Ordinal: e.Ordinal}
}

// applied takes what a node has applied.
func (t *truth) applied(node uint64, events []core.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range events {
		t.event(node, &events[i])
	}
}

func (t *truth) event(node uint64, e *core.Event) {
	if n := len(t.log); n > 0 && place(e).Compare(place(&t.log[n-1])) <= 0 {
		t.agree(node, e)
		return
	}
	if n := len(t.log); n > 0 && e.Revision > t.log[n-1].Revision+1 {
		t.w.violate("node %d: revision %d follows %d", node, e.Revision, t.log[n-1].Revision)
	}
	t.log = append(t.log, owned(e))
	t.w.count("event " + e.Kind.String() + ":" + e.Verb.String())
	switch e.Kind {
	case core.EventLock, core.EventRWLock, core.EventSemaphore, core.EventElection:
		t.claim(&t.log[len(t.log)-1])
	case core.EventSession:
		t.ended[e.Session] = e.Verb == core.VerbEnded || e.Verb == core.VerbExpired
	}
}

// owned is an event of one's own.
func owned(e *core.Event) core.Event {
	c := *e
	c.Value = bytes.Clone(e.Value)
	if e.KeyChange != nil {
		k := *e.KeyChange
		k.Key.Value, k.Prev.Value = bytes.Clone(k.Key.Value), bytes.Clone(k.Prev.Value)
		c.KeyChange = &k
	}
	return c
}

// agree: a node that applies something later tells the same.
func (t *truth) agree(node uint64, e *core.Event) {
	i := t.find(place(e))
	if i == len(t.log) || place(&t.log[i]) != place(e) {
		t.w.violate("node %d tells %d.%d %s:%s %s, where others had nothing", node, e.Revision, e.Ordinal, e.Kind, e.Verb, e.Name)
		return
	}
	if x := &t.log[i]; x.Kind != e.Kind || x.Verb != e.Verb || x.Name != e.Name || x.Token != e.Token || x.Number != e.Number || x.Session != e.Session {
		t.w.violate("node %d tells %d.%d %s:%s %s, others %s:%s %s", node, e.Revision, e.Ordinal, e.Kind, e.Verb, e.Name, x.Kind, x.Verb, x.Name)
	}
}

// find is the first event at or after p; t is locked.
func (t *truth) find(p watch.Position) int {
	return sort.Search(len(t.log), func(i int) bool { return place(&t.log[i]).Compare(p) >= 0 })
}

// happened reports whether something did.
func (t *truth) happened(kind core.EventKind, verb core.Verb, name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.log, func(e core.Event) bool { return e.Kind == kind && e.Verb == verb && e.Name == name })
}

// number is what a counter was last seen to be.
func (t *truth) number(name string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := len(t.log) - 1; i >= 0; i-- {
		if e := &t.log[i]; e.Kind == core.EventCounter && e.Name == name {
			return int64(e.Number)
		}
	}
	return 0
}

// recent is what last happened to a name; t is locked.
func (t *truth) recent(name string) string {
	var out []string
	for i := len(t.log) - 1; i >= 0 && len(out) < 12; i-- {
		if e := &t.log[i]; e.Name == name {
			out = append(out, fmt.Sprintf("%d %s %s of %x by %d", e.Revision, e.Verb, e.Mode, e.Session[:4], e.Token))
		}
	}
	slices.Reverse(out)
	return strings.Join(out, ", ")
}

// claim follows the holders of each name, and checks each grant.
func (t *truth) claim(e *core.Event) {
	h := t.names[e.Namespace+"/"+e.Name]
	if h == nil {
		h = &holders{}
		t.names[e.Namespace+"/"+e.Name] = h
	}
	switch e.Verb {
	case core.VerbAcquired, core.VerbUpgraded:
		t.grant(h, e)
	case core.VerbDowngraded:
		h.downgraded(e)
	case core.VerbReleased, core.VerbExpired, core.VerbReclaimed, core.VerbRevoked:
		if e.Verb == core.VerbRevoked && !t.ended[e.Session] {
			return // its holder is yet to confirm it
		}
		h.now = slices.DeleteFunc(h.now, func(x core.Event) bool { return x.Token == e.Token })
	}
}

// downgraded makes the only holder a reader. An upgrade that was given up
// as it was granted goes back to the token of the reader that it was.
func (h *holders) downgraded(e *core.Event) {
	for i := range h.now {
		if x := &h.now[i]; x.Session == e.Session && x.Mode == core.Exclusive {
			x.Mode, x.Token = core.Shared, e.Token
		}
	}
}

func (t *truth) grant(h *holders, e *core.Event) {
	if e.Token <= h.token {
		t.w.violate("%s: token %d after %d", e.Name, e.Token, h.token)
	}
	h.token = e.Token
	if e.Verb == core.VerbUpgraded {
		h.now = slices.DeleteFunc(h.now, func(x core.Event) bool { return x.Session == e.Session })
	}
	h.now = append(h.now, *e)
	if e.Kind == core.EventSemaphore && len(h.now) > limit {
		t.w.violate("%s: %d of %d are taken", e.Name, len(h.now), limit)
	}
	exclusive := slices.ContainsFunc(h.now, func(x core.Event) bool { return x.Mode == core.Exclusive })
	if e.Kind != core.EventSemaphore && exclusive && len(h.now) > 1 {
		t.w.violate("%s: %d holders, one of them alone, at %d: %s", e.Name, len(h.now), e.Revision, t.recent(e.Name))
	}
	t.w.ledger.granted(e, h.now)
}
