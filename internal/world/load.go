package world

import (
	"fmt"
	"time"
)

// load starts the clients.
func (w *World) load() {
	rng := w.rng("load", 0)
	for i := range uint64(3 + rng.IntN(4)) {
		p := w.party(i)
		w.clients.Go(p.run)
	}
}

// run works on several things at a time until the load ends, and then gives back
// what it holds.
func (p *party) run() {
	done := make(chan struct{})
	workers := 2 + p.rng.IntN(3)
	for i := range workers {
		k := &worker{party: p, rng: p.w.rng(fmt.Sprint("worker ", p.id), uint64(i))}
		go func() {
			defer func() { done <- struct{}{} }()
			for p.w.ctx.Err() == nil {
				k.work()
				_ = sleep(p.w.ctx, k.between(0, 300*time.Millisecond))
			}
		}()
	}
	for range workers {
		<-done
	}
	p.close()
}
