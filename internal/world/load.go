package world

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// load starts the clients.
func (w *World) load() {
	rng := w.rng("load", 0)
	if rng.IntN(4) == 0 {
		w.clients.Go(w.bulk)
	}
	for i := range uint64(3 + rng.IntN(4)) {
		p := w.party(i)
		w.clients.Go(p.run)
		if i < 3 { // one by the Go API, one by gRPC and one by REST
			w.watch(firstWatcher+i, 1+rng.IntN(4))
		}
	}
}

// bulk writes so much that a snapshot has many pieces.
func (w *World) bulk() {
	p := w.party(bulkClient)
	defer p.close()
	for i := range 40 {
		c := w.begin(p.protocol(), "bulk put", "bulk", 30*time.Second)
		c.answered(p.put(c.ctx, fmt.Sprintf("bulk/%d", i), strings.Repeat("x", 60<<10), ""))
	}
}

// bulkClient is the number of the client that does so, by the Go API.
const bulkClient = 12

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
			case follower:
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
