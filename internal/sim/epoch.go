package sim

import (
	"fmt"
	"sort"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// An epoch is the life of a cluster between two restores. What was done after
// the backup is lost, and the same numbers may be given out again; tokens may
// not.

// epoch is the one of now, from 0 on.
func (k *checker) epoch() int { return len(k.floors) }

// epochOf is the epoch that a revision belongs to.
func (k *checker) epochOf(revision uint64) int {
	return sort.Search(len(k.floors), func(i int) bool { return k.floors[i] > revision })
}

// scoped is a counter's name within an epoch.
func scoped(name string, epoch int) string { return fmt.Sprintf("%s@%d", name, epoch) }

// forget begins an epoch: nobody holds or awaits anything, and logs and terms
// begin anew. The tokens stay known: none may come again.
func (k *checker) forget(wait time.Duration) {
	clear(k.hashes)
	clear(k.leaders)
	clear(k.acked)
	clear(k.unsure)
	clear(k.ended)
	for _, r := range k.names {
		r.holders, r.queue, r.unclear = nil, nil, nil
	}
	k.began, k.fenced = false, wait == 0
}

// begin takes the state that the epoch begins with.
func (k *checker) begin(m *core.Machine) {
	k.floors = append(k.floors, m.Revision())
	for i := range counters {
		name := fmt.Sprintf("counter-%d", i)
		n := m.Read("", &core.Command{Op: core.OpCount, Count: core.CountLoad, Name: name, Unsigned: true}).Number
		if k.acked[name] = n; n > 0 {
			k.c.res.History = append(k.c.res.History, HistoryOp{Client: len(k.c.clients), Name: scoped(name, k.epoch()), Add: n, Call: k.c.now - 1, Return: k.c.now, Value: n})
		}
	}
}

// fencedOff reports whether a hold is of before a restore that did not wait: its
// holder may not know yet, and only its token keeps it from doing harm.
func (k *checker) fencedOff(o *op) bool {
	return k.fenced && k.epochOf(o.call.Result.Token) < k.epoch()
}
