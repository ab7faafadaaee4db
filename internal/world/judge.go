package world

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// leftover is how long a hold may last that nobody knows of: as long as the longest
// TTL, and what a busy group takes to notice.
const leftover = 15 * time.Second

// seen is how long it may take until a watcher has seen what happened: as long as its
// client takes to notice that its stream is silent, and to begin another.
const seen = 45 * time.Second

func (t *truth) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.log)
}

// judge looks at the end of a world in which every call has been answered.
func (w *World) judge() {
	time.Sleep(leftover)
	until := w.truth.len()
	time.Sleep(seen)
	for _, s := range w.spectators {
		s.judge(until)
	}
	w.truth.mu.Lock()
	w.marks.judge(w.truth.log)
	w.truth.mu.Unlock()
	l := w.leader()
	if l == nil {
		w.violate("nobody leads after everything has healed")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := l.srv.Look(ctx, func(m *core.Machine, _ int64) {
		w.tally.judge(func(name string) int64 {
			return int64(m.Read("default", &core.Command{Op: core.OpCount, Count: core.CountLoad, Name: name}).Number)
		})
	})
	if err != nil {
		w.violate("a healed group cannot be read: %v", err)
	}
	w.truth.free()
}

// free: nobody holds anything any more.
func (t *truth) free() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, h := range t.names {
		if len(h.now) > 0 {
			t.w.violate("%s is still held by %d of %q although everybody has given it back", name, h.now[0].Token, h.now[0].Owner)
		}
	}
}
