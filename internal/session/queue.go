package session

// numbered is a queue of numbered things: consecutive numbers, looked up by number,
// dropped from the front. It re-uses its memory.
type numbered[T any] struct {
	items []T
	head  int    // items before it are dropped
	base  uint64 // number of items[head]
}

// next is the number that the next push gets.
func (l *numbered[T]) next() uint64 { return l.base + uint64(len(l.items)-l.head) }

func (l *numbered[T]) push(item T) uint64 {
	if l.head > len(l.items)/2 && l.head >= 32 {
		n := copy(l.items, l.items[l.head:])
		clear(l.items[n:])
		l.items, l.head = l.items[:n], 0
	}
	l.items = append(l.items, item)
	return l.next() - 1
}

// at returns the item with a number, nil if it is not there.
func (l *numbered[T]) at(number uint64) *T {
	if number < l.base || number >= l.next() {
		return nil
	}
	return &l.items[l.head+int(number-l.base)]
}

// drop forgets the first item.
func (l *numbered[T]) drop() {
	var zero T
	l.items[l.head] = zero
	l.head++
	l.base++
	if l.head == len(l.items) {
		l.items, l.head = l.items[:0], 0
	}
}

// all is every item in order; valid until the next change.
func (l *numbered[T]) all() []T { return l.items[l.head:] }

// clear forgets all items; numbers go on.
func (l *numbered[T]) clear() {
	l.base = l.next()
	clear(l.items)
	l.items, l.head = l.items[:0], 0
}
