package remote

import (
	"bytes"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// A watcher that is further behind the foremost of its share than this, in events
// or in bytes, gets a resync.
const (
	maxEvents = 4096
	maxBytes  = 4 << 20
)

// position is where an event is in the order of all.
func position(e *driver.Event) watch.Position {
	return watch.Position{Revision: uint64(e.Revision), Ordinal: e.Ordinal}
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
