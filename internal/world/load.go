package world

import (
	"fmt"
	"sync"
	"time"
)

// load starts the clients.
func (w *World) load() {
	rng := w.rng("load", 0)
	for i := range uint64(3 + rng.IntN(4)) {
		p := w.party(i)
		w.clients.Go(p.run)
		if i < 2 { // one by the Go API and one by gRPC
			w.watch(firstWatcher+i, 1+rng.IntN(4))
		}
	}
}

// firstWatcher is the number of the first client that only watches.
const firstWatcher = 9

// watch starts a client that watches several times.
func (w *World) watch(id uint64, times int) {
	p := w.party(id)
	var all sync.WaitGroup
	for i := range times {
		k := &worker{party: p, rng: w.rng(fmt.Sprint("watcher ", id), uint64(i))}
		all.Go(func() {
			switch x := p.speaker.(type) {
			case *gopher:
				k.watchGo(x.s)
			case *plain:
				k.watchPlain(x)
			}
		})
	}
	w.watchers.Go(func() {
		all.Wait()
		p.close()
	})
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
