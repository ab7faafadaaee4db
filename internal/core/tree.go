package core

import (
	"cmp"
	"slices"
)

// tree keeps named items in order of name, which may be a number: a B+ tree. Items lie in the leaves,
// with their names beside them, so that a search looks at few places in memory;
// an inner node has, for each child but the first, a name that divides it from
// the one before. All leaves lie equally deep, and every node but the root and
// the last leaf has at least treeLeast items or children: none is ever empty.
type tree[K cmp.Ordered, T interface{ id() K }] struct {
	root *treeNode[K, T] // nil: no items
	n    int
}

type treeNode[K cmp.Ordered, T interface{ id() K }] struct {
	items []T // leaf
	names []K // leaf: of items
	kids  []*treeNode[K, T]
}

// A node is split when it has treeWidth items or children, and joined with a
// neighbour, or given some of its items, when it has fewer than treeLeast. Two
// become one only if that leaves room to grow (treeJoin): else items that come
// and go at the edge would split and join it each time.
const (
	treeWidth = 62
	treeLeast = treeWidth / 4
	treeJoin  = treeWidth * 3 / 4
)

// insert adds an item; its name must not be in the tree.
func (t *tree[K, T]) insert(it T) {
	if t.root == nil {
		t.root = &treeNode[K, T]{} // grows as it needs: many trees have one item
	}
	t.n++
	if name, right := t.root.insert(it, true); right != nil {
		t.root = &treeNode[K, T]{names: []K{name}, kids: []*treeNode[K, T]{t.root, right}}
	}
}

// insert returns the right half of a node that had to be split, and its name.
// last says that there is no leaf behind those of n.
func (n *treeNode[K, T]) insert(it T, last bool) (_ K, _ *treeNode[K, T]) {
	if n.kids == nil {
		i := n.search(it.id())
		n.items = slices.Insert(n.items, i, it)
		n.names = slices.Insert(n.names, i, it.id())
		return n.splitLeaf(last && i == len(n.items)-1)
	}
	i := n.child(it.id())
	name, right := n.kids[i].insert(it, last && i == len(n.kids)-1)
	if right == nil {
		return none[K](), nil
	}
	n.names = slices.Insert(n.names, i, name)
	n.kids = slices.Insert(n.kids, i+1, right)
	return n.splitInner()
}

// splitLeaf halves a full leaf, or at the end of the tree gives it only the new
// item: names that come in order leave full leaves behind.
func (n *treeNode[K, T]) splitLeaf(atEnd bool) (_ K, _ *treeNode[K, T]) {
	if len(n.items) < treeWidth {
		return none[K](), nil
	}
	mid := len(n.items) / 2
	if atEnd {
		mid = len(n.items) - 1
	}
	right := newLeaf[K](n.items[mid:], n.names[mid:])
	clear(n.items[mid:])
	clear(n.names[mid:])
	n.items, n.names = n.items[:mid], n.names[:mid]
	return right.names[0], right
}

func newLeaf[K cmp.Ordered, T interface{ id() K }](items []T, names []K) *treeNode[K, T] {
	return &treeNode[K, T]{
		items: append(make([]T, 0, treeWidth), items...),
		names: append(make([]K, 0, treeWidth), names...),
	}
}

func (n *treeNode[K, T]) splitInner() (_ K, _ *treeNode[K, T]) {
	if len(n.kids) < treeWidth {
		return none[K](), nil
	}
	mid := len(n.kids) / 2
	name := n.names[mid-1]
	right := &treeNode[K, T]{names: slices.Clone(n.names[mid:]), kids: slices.Clone(n.kids[mid:])}
	clear(n.names[mid-1:])
	clear(n.kids[mid:])
	n.names, n.kids = n.names[:mid-1], n.kids[:mid]
	return name, right
}

// search finds the place of name in a leaf.
func (n *treeNode[K, T]) search(name K) int {
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
func (n *treeNode[K, T]) child(name K) int {
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

// remove takes the item of that name out, if there is one.
func (t *tree[K, T]) remove(name K) {
	if t.root == nil || !t.root.remove(name) {
		return
	}
	if t.n--; t.n == 0 {
		t.root = nil
	} else if len(t.root.kids) == 1 {
		t.root = t.root.kids[0]
	}
}

func (n *treeNode[K, T]) remove(name K) bool {
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
	if n.kids[i].size() < treeLeast {
		n.mend(max(0, i-1))
	}
	return true
}

func (n *treeNode[K, T]) size() int { return len(n.items) + len(n.kids) }

// mend joins the children i and i+1, one of which has too little, or shares out
// evenly what they have.
func (n *treeNode[K, T]) mend(i int) {
	a, b := n.kids[i], n.kids[i+1]
	total := a.size() + b.size()
	if total > treeJoin {
		n.shift(i, total/2-a.size())
		return
	}
	if a.kids != nil {
		a.names = append(a.names, n.names[i])
	}
	a.items = append(a.items, b.items...)
	a.kids = append(a.kids, b.kids...)
	a.names = append(a.names, b.names...)
	n.names = slices.Delete(n.names, i, i+1)
	n.kids = slices.Delete(n.kids, i+1, i+2)
}

// shift moves k items or children of the child i+1 to the end of the child i; if
// k is negative, the other way. Something stays in both.
func (n *treeNode[K, T]) shift(i, k int) {
	a, b := n.kids[i], n.kids[i+1]
	if a.kids == nil {
		move(&a.items, &b.items, k)
		move(&a.names, &b.names, k)
		n.names[i] = b.names[0]
		return
	}
	// The name between the two joins those of a, and the last there takes its place.
	a.names = append(a.names, n.names[i])
	move(&a.kids, &b.kids, k)
	move(&a.names, &b.names, k)
	last := len(a.names) - 1
	n.names[i], a.names[last] = a.names[last], none[K]()
	a.names = a.names[:last]
}

// move moves the first k of b to the end of a; if k is negative, the last of a to
// the front of b.
func move[E any](a, b *[]E, k int) {
	if k >= 0 {
		*a = append(*a, (*b)[:k]...)
		*b = slices.Delete(*b, 0, k)
		return
	}
	keep := len(*a) + k
	*b = slices.Insert(*b, 0, (*a)[keep:]...)
	*a = slices.Delete(*a, keep, len(*a))
}

func none[K any]() (k K) { return k }

// find returns the item of that name; false: there is none.
func (t *tree[K, T]) find(name K) (it T, ok bool) {
	n := t.root
	if n == nil {
		return it, false
	}
	for n.kids != nil {
		n = n.kids[n.child(name)]
	}
	if i := n.search(name); i < len(n.names) && n.names[i] == name {
		return n.items[i], true
	}
	return it, false
}

// first is the first item with a name of at least name, the zero T if there is none.
func (t *tree[K, T]) first(name K) (it T) {
	t.from(name, func(x T) bool {
		it = x
		return false
	})
	return it
}

// least is the first item; there must be one.
func (t *tree[K, T]) least() T {
	n := t.root
	for n.kids != nil {
		n = n.kids[0]
	}
	return n.items[0]
}

// from calls f with the items from name on, in order, until it
// says false.
func (t *tree[K, T]) from(name K, f func(T) bool) {
	if t.root != nil {
		t.root.from(name, f)
	}
}

func (n *treeNode[K, T]) from(name K, f func(T) bool) bool {
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
