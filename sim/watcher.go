package sim

import (
	"errors"
	"sort"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/watch"
)

// watcher follows everything that happens, from whichever node is up: it must
// see each event once, in order, and hear of every gap.
type watcher struct {
	c    *cluster
	node *node
	life int
	w    *watch.Watcher
	next int    // the event of the true history that comes next
	from uint64 // events of earlier revisions are not asked for
}

func (x *watcher) watch() {
	x.c.after(x.c.between(20*millisecond, 300*millisecond), func() {
		x.look()
		x.watch()
	})
}

func (x *watcher) look() {
	if x.node == nil || x.node.life != x.life || !x.node.up {
		x.attach()
		return
	}
	if x.node.paused {
		return
	}
	events, resync := x.node.hub.Read(x.w, nil, 50)
	if resync != 0 {
		x.c.res.Resyncs++
		x.jump(resync)
	}
	for i := range events {
		x.see(&events[i])
	}
	if x.c.chance(0.02) {
		x.node.hub.Remove(x.w)
		x.node = nil
	}
}

// attach goes on at another node from where it was, or reads the state anew if
// that is too long ago.
func (x *watcher) attach() {
	n := x.c.nodes[x.c.rng.IntN(len(x.c.nodes))]
	if !n.up || n.paused {
		return
	}
	from := uint64(1)
	if x.next > 0 {
		from = x.c.check.log[x.next-1].Revision
	}
	w, _, err := n.hub.Add(watch.Filter{Namespace: "default"}, from)
	if gone := (*watch.CompactedError)(nil); errors.As(err, &gone) {
		x.c.res.Resyncs++
		from = gone.Floor
		w, _, err = n.hub.Add(watch.Filter{Namespace: "default"}, from)
	}
	if err != nil {
		x.c.violate("a watch from revision %d on node %d: %v", from, n.id, err)
		return
	}
	x.node, x.life, x.w = n, n.life, w
	x.jump(from)
}

// jump goes to the first event at or after a revision.
func (x *watcher) jump(revision uint64) {
	log := x.c.check.log
	x.from = revision
	x.next = sort.Search(len(log), func(i int) bool { return log[i].Revision >= revision })
}

func (x *watcher) see(e *core.Event) {
	log := x.c.check.log
	x.c.res.Watched++
	for x.next < len(log) && log[x.next].Revision < x.from {
		x.next++ // a denial takes the revision of the last change, even after a jump
	}
	if x.next >= len(log) {
		x.c.violate("a watcher of node %d saw revision %d, which never happened", x.node.id, e.Revision)
		return
	}
	if want := &log[x.next]; want.Revision != e.Revision || want.Ordinal != e.Ordinal || want.Kind != e.Kind || want.Verb != e.Verb || want.Name != e.Name || want.Token != e.Token {
		x.c.violate("a watcher of node %d saw %d.%d %s:%s %s, where %d.%d %s:%s %s comes next", x.node.id,
			e.Revision, e.Ordinal, e.Kind, e.Verb, e.Name, want.Revision, want.Ordinal, want.Kind, want.Verb, want.Name)
	}
	x.next++
}
