package remote

import (
	"bytes"

	"github.com/holdfast-io/holdfast/driver"
)

// A watcher that is further behind the others of its share than this, in events
// or in bytes, gets a resync.
const (
	maxEvents = 4096
	maxBytes  = 4 << 20
)

// fan is what came over one subscription, for any number of watchers. Each has its
// own place in it, so that nobody waits for the slowest. It does no locking.
type fan struct {
	events []driver.Event
	bytes  int
	base   uint64 // the place of the first of them
	floor  uint64 // from this revision on nothing is missing
}

// place is where a watcher stands.
type place struct {
	at   uint64
	from uint64 // the first revision it wants
}

// end is the place of who begins now.
func (f *fan) end() uint64 { return f.base + uint64(len(f.events)) }

// add takes events in. When there are too many, the older half goes.
func (f *fan) add(events []driver.Event) {
	for i := range events {
		f.events = append(f.events, events[i])
		f.bytes += size(&events[i])
		if len(f.events) > maxEvents || f.bytes > maxBytes {
			f.floor = max(f.floor, f.events[(len(f.events)-1)/2].Revision+1)
			f.drop(f.base + uint64(len(f.events)+1)/2)
		}
	}
}

// size is about what an event takes.
func size(e *driver.Event) int {
	n := 256 + len(e.Name) + len(e.Value)
	for _, kv := range []*driver.KV{e.KV, e.Prev} {
		if kv != nil {
			n += 128 + len(kv.Value)
		}
	}
	return n
}

// drop forgets what is before a place.
func (f *fan) drop(before uint64) {
	n := min(int(before-f.base), len(f.events))
	for i := range n {
		f.bytes -= size(&f.events[i])
	}
	rest := copy(f.events, f.events[n:])
	clear(f.events[rest:])
	f.events, f.base = f.events[:rest], f.base+uint64(n)
}

// gap notes that events before revision are missing.
func (f *fan) gap(revision uint64) {
	f.drop(f.end())
	f.floor = max(f.floor, revision)
}

// read appends at most limit of the events that p has yet to see to dst. resync is
// not 0 if some of them are not here any more: what follows begins at that
// revision.
func (f *fan) read(p *place, dst []driver.Event, limit int) (events []driver.Event, resync uint64) {
	if p.at < f.base {
		p.at = f.base
		if p.from < f.floor {
			p.from = f.floor
			return dst, f.floor
		}
	}
	for ; p.at < f.end() && len(dst) < limit; p.at++ {
		if e := &f.events[p.at-f.base]; e.Revision >= p.from {
			dst = append(dst, *e)
		}
	}
	return dst, 0
}

// own makes an event its reader's own: others read it too.
func own(e *driver.Event) {
	e.Value, e.KV, e.Prev = bytes.Clone(e.Value), ownKV(e.KV), ownKV(e.Prev)
}

func ownKV(kv *driver.KV) *driver.KV {
	if kv == nil {
		return nil
	}
	c := *kv
	c.Value = bytes.Clone(kv.Value)
	return &c
}
