package watch

import (
	"slices"
	"strings"
)

// tree maps prefixes to watchers: a radix tree, so that an event costs the
// length of its name and not the number of watchers.
type tree struct{ root node }

type node struct {
	label    string // the part of the prefix below the parent
	children []*node
	watchers []*Watcher // those with a prefix that ends here; each knows its place
}

// child returns the child with a label that begins with the byte c, and its place.
func (n *node) child(c byte) (*node, int) {
	for i, k := range n.children {
		if k.label[0] == c {
			return k, i
		}
	}
	return nil, -1
}

func (t *tree) add(prefix string, w *Watcher) {
	n := &t.root
	for prefix != "" {
		k, i := n.child(prefix[0])
		if k == nil {
			k = &node{label: prefix}
			n.children = append(n.children, k)
		}
		common := commonPrefix(k.label, prefix)
		if common < len(k.label) {
			upper := &node{label: k.label[:common], children: []*node{k}}
			k.label = k.label[common:]
			n.children[i] = upper
			k = upper
		}
		prefix = prefix[common:]
		n = k
	}
	w.place = len(n.watchers)
	n.watchers = append(n.watchers, w)
}

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// remove forgets w and the nodes that nobody needs any more.
func (t *tree) remove(prefix string, w *Watcher) { t.root.remove(prefix, w) }

func (n *node) remove(prefix string, w *Watcher) {
	if prefix == "" {
		n.leave(w)
		return
	}
	k, i := n.child(prefix[0])
	if k == nil || !strings.HasPrefix(prefix, k.label) {
		return
	}
	k.remove(prefix[len(k.label):], w)
	n.prune(k, i)
}

// leave takes w out of the watchers, and has the last of them take its place: thousands that
// end together cost as much each as the first.
func (n *node) leave(w *Watcher) {
	last := len(n.watchers) - 1
	if w.place > last || n.watchers[w.place] != w {
		return
	}
	n.watchers[w.place] = n.watchers[last]
	n.watchers[w.place].place = w.place
	n.watchers[last] = nil
	n.watchers = n.watchers[:last]
	if 4*last < cap(n.watchers) {
		n.watchers = slices.Clip(slices.Clone(n.watchers))
	}
}

// prune drops the child k, or joins it with its only child.
func (n *node) prune(k *node, i int) {
	switch {
	case len(k.watchers) > 0 || len(k.children) > 1:
	case len(k.children) == 1:
		only := k.children[0]
		only.label = k.label + only.label
		n.children[i] = only
	default:
		n.children = append(n.children[:i:i], n.children[i+1:]...)
	}
}

// visit calls f for every watcher with a prefix that name begins with.
func (t *tree) visit(name string, f func(*Watcher)) {
	for n := &t.root; n != nil; {
		for _, w := range n.watchers {
			f(w)
		}
		if name == "" {
			return
		}
		k, _ := n.child(name[0])
		if k == nil || !strings.HasPrefix(name, k.label) {
			return
		}
		name, n = name[len(k.label):], k
	}
}

// each calls f for every watcher at or below n.
func (n *node) each(f func(*Watcher)) {
	for _, w := range n.watchers {
		f(w)
	}
	for _, k := range n.children {
		k.each(f)
	}
}
