package watch

import "iter"

// Fan keeps what came over one subscription for any number of readers. Each has its
// own place in it, so that nobody waits for the slowest; a reader that is so far
// behind the foremost that the fan had to forget what it has yet to read gets a
// resync. So does every reader at a gap of the subscription itself, however fast it
// is. It does no locking.
type Fan[E any] struct {
	FanConfig[E]
	items []item[E] // from head on
	head  int
	base  uint64   // the place of items[head]
	bytes uint64   // of everything that was ever added
	floor Position // behind what was forgotten
}

// FanConfig says what a fan keeps.
type FanConfig[E any] struct {
	MaxEvents int
	MaxBytes  int
	At        func(*E) Position
	Size      func(*E) int // in bytes
}

// NewFan returns an empty fan.
func NewFan[E any](c FanConfig[E]) *Fan[E] { return &Fan[E]{FanConfig: c} }

// item is an event or, where events are missing, a gap.
type item[E any] struct {
	at    Position // gap: what follows is at or after it
	event E
	gap   bool
	bytes uint64 // of everything up to it
}

// Reader is one place in a fan. It is made by [Fan.Join].
type Reader struct {
	at   uint64
	from Position // what is before is not wanted
}

// From says that the reader does not want what is before p.
func (r *Reader) From(p Position) { r.from = p }

// Join returns a reader of what will be added.
func (f *Fan[E]) Join() Reader { return Reader{at: f.end()} }

func (f *Fan[E]) end() uint64 { return f.base + uint64(f.len()) }

func (f *Fan[E]) len() int { return len(f.items) - f.head }

// Add takes in events and returns how many. It stops where the foremost of the
// readers would lose what it has yet to read: the rest has to wait for it. Without
// readers it takes all.
func (f *Fan[E]) Add(events []E, readers iter.Seq[*Reader]) (n int) {
	foremost, none := f.foremost(readers)
	for n < len(events) && (none || f.room(foremost)) {
		f.add(events[n])
		n++
	}
	return n
}

func (f *Fan[E]) add(e E) {
	f.push(item[E]{at: f.At(&e), event: e}, f.Size(&e))
}

// Gap notes that events are missing: what follows is at or after next.
func (f *Fan[E]) Gap(next Position) {
	f.push(item[E]{at: next, gap: true}, 0)
}

func (f *Fan[E]) push(x item[E], size int) {
	f.bytes += uint64(size)
	x.bytes = f.bytes
	f.items = append(f.items, x)
	for f.len() > f.MaxEvents || f.len() > 0 && f.kept() > uint64(f.MaxBytes) {
		f.drop(1)
	}
}

// kept is how many bytes the fan has, but for its first event.
func (f *Fan[E]) kept() uint64 { return f.bytes - f.items[f.head].bytes }

// drop forgets the n oldest. Those that are left are moved now and then, so that it
// costs about the same for each.
func (f *Fan[E]) drop(n int) {
	f.floor = f.behind(n)
	clear(f.items[f.head : f.head+n])
	f.head += n
	f.base += uint64(n)
	if f.head > len(f.items)/2 {
		rest := copy(f.items, f.items[f.head:])
		clear(f.items[rest:])
		f.items, f.head = f.items[:rest], 0
	}
}

// behind is where a reader goes on that has missed the n oldest. A revision is seen
// whole or not at all.
func (f *Fan[E]) behind(n int) Position {
	if n == 0 {
		return f.floor
	}
	x := &f.items[f.head+n-1]
	if x.gap {
		return x.at
	}
	return Position{Revision: x.at.Revision + 1}
}

// Trim forgets what all readers have read.
func (f *Fan[E]) Trim(readers iter.Seq[*Reader]) {
	read := f.end()
	for r := range readers {
		read = min(read, max(r.at, f.base))
	}
	f.drop(int(read - f.base))
}

// foremost is the place of the reader that has read the most; none: there is no reader.
func (f *Fan[E]) foremost(readers iter.Seq[*Reader]) (at uint64, none bool) {
	none, at = true, f.base
	for r := range readers {
		none, at = false, max(at, r.at)
	}
	return at, none
}

// room reports whether a reader at that place has so little to read that another
// event, of up to half the bytes, does not drive any of it out.
func (f *Fan[E]) room(at uint64) bool {
	unread := f.end() - min(at, f.end())
	if unread == 0 {
		return true
	}
	first := &f.items[f.head+int(at-f.base)]
	return unread < uint64(f.MaxEvents)/4 && f.bytes-first.bytes < uint64(f.MaxBytes)/4
}

// Read appends at most limit of the events that r has yet to see to dst. resync is
// not 0 if some of them are missing: the state must be read anew, and what follows
// begins at that revision.
func (f *Fan[E]) Read(r *Reader, dst []E, limit int) (events []E, resync uint64) {
	if r.at < f.base {
		skip := f.len() / 2 // a little later it would be behind again
		r.at = f.base + uint64(skip)
		if resync := r.miss(f.behind(skip)); resync != 0 {
			return dst, resync
		}
	}
	for n := 0; r.at < f.end() && n < limit; r.at++ {
		x := &f.items[f.head+int(r.at-f.base)]
		switch {
		case x.gap && n > 0:
			return dst, 0
		case x.gap:
			if resync := r.miss(x.at); resync != 0 {
				r.at++
				return dst, resync
			}
		case x.at.Compare(r.from) >= 0:
			dst = append(dst, x.event)
			n++
		}
	}
	return dst, 0
}

// miss moves r to p, since events before it are missing, and tells the resync; 0:
// r does not want them.
func (r *Reader) miss(p Position) (resync uint64) {
	if p.Compare(r.from) <= 0 {
		return 0
	}
	r.from = p
	return p.Whole()
}
