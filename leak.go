package holdfast

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

// leakCheckEvery is how often a Space with holds looks for abandoned ones.
const leakCheckEvery = 5 * time.Second

// leaks releases Holds that became unreachable. The garbage collector's cleanup
// only marks them, since it may come at any time and must not wait; one timer a
// Space, running while something is held, does the rest.
type leaks struct {
	timer   *time.Timer
	running bool // both under spaceState.mu

	mu     sync.Mutex
	marked []*holdRef
}

// watchOver has h noticed when nobody can reach it any more.
func watchOver(h *Hold) {
	h.cleanup = runtime.AddCleanup(h, abandoned, h.g)
}

func abandoned(g *holdRef) {
	b := &g.c.r.leaks
	b.mu.Lock()
	defer b.mu.Unlock()
	b.marked = append(b.marked, g)
}

// start runs the timer; spaceState.mu is held.
func (b *leaks) start(r *spaceState) {
	if b.running {
		return
	}
	b.running = true
	if b.timer == nil {
		b.timer = time.AfterFunc(leakCheckEvery, r.sweep)
		return
	}
	b.timer.Reset(leakCheckEvery)
}

func (b *leaks) take() []*holdRef {
	b.mu.Lock()
	defer b.mu.Unlock()
	marked := b.marked
	b.marked = nil
	return marked
}

func (b *leaks) putBack(marked []*holdRef) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.marked = append(b.marked, marked...)
}

// sweep is one leaks.
func (r *spaceState) sweep() {
	r.spawn(func() {
		marked := r.leaks.take()
		defer func() { // also if a hook ends the goroutine: the next has the rest
			r.leaks.putBack(marked)
			r.rest()
		}()
		for len(marked) > 0 {
			g := marked[0]
			marked = marked[1:]
			g.abandon()
		}
	})
}

// rest sets the next leaks if there is anything to watch over.
func (r *spaceState) rest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaks.running = r.holds > 0 && r.phase.Load() != closed
	if r.leaks.running {
		r.leaks.timer.Reset(leakCheckEvery)
	}
}

func (r *spaceState) stopLeakCheck() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaks.timer != nil {
		r.leaks.timer.Stop()
	}
}

// abandon releases a holdRef after its Hold is gone, and reports it.
func (g *holdRef) abandon() {
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
