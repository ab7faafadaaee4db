package holdfast

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

// beatEvery is how often a Space with holds looks for abandoned ones.
const beatEvery = 5 * time.Second

// beat releases Holds that became unreachable. The garbage collector's cleanup
// only marks them, since it may come at any time and must not wait; one timer a
// Space, running while something is held, does the rest.
type beat struct {
	timer   *time.Timer
	running bool // both under root.mu

	mu     sync.Mutex
	marked []*grip
}

// watchOver has h noticed when nobody can reach it any more.
func watchOver(h *Hold) {
	h.cleanup = runtime.AddCleanup(h, abandoned, h.g)
}

func abandoned(g *grip) {
	b := &g.c.r.beat
	b.mu.Lock()
	defer b.mu.Unlock()
	b.marked = append(b.marked, g)
}

// start runs the timer; root.mu is held.
func (b *beat) start(r *root) {
	if b.running {
		return
	}
	b.running = true
	if b.timer == nil {
		b.timer = time.AfterFunc(beatEvery, r.sweep)
		return
	}
	b.timer.Reset(beatEvery)
}

func (b *beat) take() []*grip {
	b.mu.Lock()
	defer b.mu.Unlock()
	marked := b.marked
	b.marked = nil
	return marked
}

// sweep is one beat.
func (r *root) sweep() {
	r.spawn(func() {
		for _, g := range r.beat.take() {
			g.abandon()
		}
		r.rest()
	})
}

// rest sets the next beat if there is anything to watch over.
func (r *root) rest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beat.running = r.holds > 0 && r.phase.Load() != closed
	if r.beat.running {
		r.beat.timer.Reset(beatEvery)
	}
}

func (r *root) stopBeat() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.beat.timer != nil {
		r.beat.timer.Stop()
	}
}

// abandon releases a grip whose Hold is gone, and reports it.
func (g *grip) abandon() {
	mine := false
	g.once.Do(func() {
		mine = g.err() == nil
		g.release()
	})
	if !mine {
		return
	}
	how := "released now"
	if g.result != nil {
		how = fmt.Sprintf("releasing it failed: %v", g.result)
	}
	g.c.r.fault("hold", g.c.name, &Error{Op: "hold", Name: g.c.name, Kind: ErrReleased,
		Err: fmt.Errorf("it became unreachable without Release, %s; keep it and defer its Release", how)})
}
