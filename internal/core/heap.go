package core

// timed is what a heap orders: by time, then by before, which must be a total
// order, so that a heap built anew serves in the same order.
type timed[T any] interface {
	pos() *int32 // place in the heap plus one; 0: not in it
	before(T) bool
}

type timer[T any] struct {
	at int64
	it T
}

// leastHeap is the room that a heap keeps in any case.
const leastHeap = 1024

// heap holds deadlines, the earliest first, or with none what comes first. It gives room back that it needs no more.
type heap[T timed[T]] struct{ a []timer[T] }

func (h *heap[T]) len() int { return len(h.a) }

// top is the earliest deadline.
func (h *heap[T]) top() (at int64, it T, ok bool) {
	if len(h.a) == 0 {
		return 0, it, false
	}
	return h.a[0].at, h.a[0].it, true
}

// set puts it into the heap at that time, or moves it there.
func (h *heap[T]) set(it T, at int64) {
	i := int(*it.pos()) - 1
	if i < 0 {
		h.a = append(h.a, timer[T]{at, it})
		h.up(len(h.a) - 1)
		return
	}
	h.a[i].at = at
	if h.up(i) == i {
		h.down(i)
	}
}

// remove takes it out, if it is in.
func (h *heap[T]) remove(it T) {
	i := int(*it.pos()) - 1
	if i < 0 {
		return
	}
	*it.pos() = 0
	last := h.a[len(h.a)-1]
	h.a[len(h.a)-1] = timer[T]{}
	h.a = h.a[:len(h.a)-1]
	if cap(h.a) > leastHeap && len(h.a) < cap(h.a)/8 {
		h.a = append(make([]timer[T], 0, cap(h.a)/4), h.a...)
	}
	if i == len(h.a) {
		return
	}
	h.put(i, last)
	if h.up(i) == i {
		h.down(i)
	}
}

func (h *heap[T]) put(i int, t timer[T]) {
	h.a[i] = t
	*t.it.pos() = int32(i) + 1
}

func less[T timed[T]](a, b timer[T]) bool {
	return a.at < b.at || a.at == b.at && a.it.before(b.it)
}

func (h *heap[T]) up(i int) int {
	t := h.a[i]
	for i > 0 {
		p := (i - 1) / 2
		if !less(t, h.a[p]) {
			break
		}
		h.put(i, h.a[p])
		i = p
	}
	h.put(i, t)
	return i
}

func (h *heap[T]) down(i int) {
	t := h.a[i]
	for {
		c := 2*i + 1
		if c >= len(h.a) {
			break
		}
		if c+1 < len(h.a) && less(h.a[c+1], h.a[c]) {
			c++
		}
		if !less(h.a[c], t) {
			break
		}
		h.put(i, h.a[c])
		i = c
	}
	h.put(i, t)
}
