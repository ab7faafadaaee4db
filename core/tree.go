package core

import "slices"

// tree keeps named items in order of name. Items lie in the leaves, with their
// names beside them, so that a search looks at few places in memory; an inner
// node has, for each child but the first, the least name that was below it.
type tree[T interface{ id() string }] struct {
	root *treeNode[T]
	n    int
}

type treeNode[T interface{ id() string }] struct {
	items []T      // leaf
	names []string // leaf: of items
	kids  []*treeNode[T]
}

const treeWidth = 62

func (t *tree[T]) insert(it T) {
	if t.root == nil {
		t.root = newLeaf[T](nil, nil)
	}
	t.n++
	if name, right := t.root.insert(it); right != nil {
		t.root = &treeNode[T]{names: []string{name}, kids: []*treeNode[T]{t.root, right}}
	}
}

// insert returns the right half of a node that had to be split, and its name.
func (n *treeNode[T]) insert(it T) (string, *treeNode[T]) {
	if n.kids == nil {
		i := n.search(it.id())
		n.items = slices.Insert(n.items, i, it)
		n.names = slices.Insert(n.names, i, it.id())
		return n.splitLeaf(i)
	}
	i := n.child(it.id())
	name, right := n.kids[i].insert(it)
	if right == nil {
		return "", nil
	}
	n.names = slices.Insert(n.names, i, name)
	n.kids = slices.Insert(n.kids, i+1, right)
	return n.splitInner()
}

// splitLeaf halves a full leaf, except at its end: names that come in order
// leave full leaves behind.
func (n *treeNode[T]) splitLeaf(at int) (string, *treeNode[T]) {
	if len(n.items) < treeWidth {
		return "", nil
	}
	mid := len(n.items) / 2
	if at == len(n.items)-1 {
		mid = at
	}
	right := newLeaf(n.items[mid:], n.names[mid:])
	clear(n.items[mid:])
	clear(n.names[mid:])
	n.items, n.names = n.items[:mid], n.names[:mid]
	return right.names[0], right
}

func newLeaf[T interface{ id() string }](items []T, names []string) *treeNode[T] {
	return &treeNode[T]{
		items: append(make([]T, 0, treeWidth), items...),
		names: append(make([]string, 0, treeWidth), names...),
	}
}

func (n *treeNode[T]) splitInner() (string, *treeNode[T]) {
	if len(n.kids) < treeWidth {
		return "", nil
	}
	mid := len(n.kids) / 2
	name := n.names[mid-1]
	right := &treeNode[T]{names: slices.Clone(n.names[mid:]), kids: slices.Clone(n.kids[mid:])}
	clear(n.names[mid-1:])
	clear(n.kids[mid:])
	n.names, n.kids = n.names[:mid-1], n.kids[:mid]
	return name, right
}

// search finds the place of name in a leaf.
func (n *treeNode[T]) search(name string) int {
	lo, hi := 0, len(n.names)
	for lo < hi {
		mid := (lo + hi) / 2
		if n.names[mid] < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// child finds the child that name belongs to.
func (n *treeNode[T]) child(name string) int {
	lo, hi := 0, len(n.names)
	for lo < hi {
		mid := (lo + hi) / 2
		if n.names[mid] <= name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (t *tree[T]) remove(name string) {
	if t.root == nil || !t.root.remove(name) {
		return
	}
	if t.n--; t.n == 0 {
		t.root = nil
	}
	for t.root != nil && len(t.root.kids) == 1 {
		t.root = t.root.kids[0]
	}
}

func (n *treeNode[T]) remove(name string) bool {
	if n.kids == nil {
		i := n.search(name)
		if i == len(n.items) || n.names[i] != name {
			return false
		}
		n.items = slices.Delete(n.items, i, i+1)
		n.names = slices.Delete(n.names, i, i+1)
		return true
	}
	i := n.child(name)
	if !n.kids[i].remove(name) {
		return false
	}
	if i+1 < len(n.kids) {
		n.merge(i)
	}
	if i > 0 {
		n.merge(i - 1)
	}
	return true
}

// merge joins the children i and i+1 if that leaves the result half empty.
func (n *treeNode[T]) merge(i int) {
	a, b := n.kids[i], n.kids[i+1]
	if len(a.items)+len(b.items)+len(a.kids)+len(b.kids) > treeWidth/2 {
		return
	}
	if a.kids == nil {
		a.items = append(a.items, b.items...)
		a.names = append(a.names, b.names...)
	} else {
		a.names = append(append(a.names, n.names[i]), b.names...)
		a.kids = append(a.kids, b.kids...)
	}
	n.names = slices.Delete(n.names, i, i+1)
	n.kids = slices.Delete(n.kids, i+1, i+2)
}

// least is the first item; there must be one.
func (t *tree[T]) least() T {
	n := t.root
	for n.kids != nil {
		n = n.kids[0]
	}
	return n.items[0]
}

// from calls f with the items whose name is at least name, in order, until it
// says false.
func (t *tree[T]) from(name string, f func(T) bool) {
	if t.root != nil {
		t.root.from(name, f)
	}
}

func (n *treeNode[T]) from(name string, f func(T) bool) bool {
	if n.kids == nil {
		for _, it := range n.items[n.search(name):] {
			if !f(it) {
				return false
			}
		}
		return true
	}
	for _, kid := range n.kids[n.child(name):] {
		if !kid.from(name, f) {
			return false
		}
	}
	return true
}
