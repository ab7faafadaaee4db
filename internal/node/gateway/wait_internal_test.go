package gateway

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// crowd is a session that waits for many claims, and its claim table.
func crowd(n int) (*attached, *session.Message) {
	a := &attached{number: 1}
	m := &session.Message{Kind: session.KindTable, Stream: 1, Known: true}
	for seq := uint64(n); seq > 0; seq-- {
		a.waits = append(a.waits, nil)
		copy(a.waits[1:], a.waits)
		a.waits[0] = &wait{seq: seq, from: 1, done: make(chan outcome, 1)}
	}
	for seq := uint64(1); seq <= uint64(n); seq++ {
		m.Rows = append(m.Rows, core.ClaimRow{Seq: seq, State: core.ClaimWaiting})
	}
	return a, m
}

// A claim table is read on the node's loop: twenty times as many waits cost about
// twenty times as much, not four hundred times.
func TestTableOfManyWaits(t *testing.T) {
	least := func(n int) time.Duration {
		a, m := crowd(n)
		best := time.Hour
		for range 20 {
			began := time.Now()
			a.table(m)
			best = min(best, time.Since(began))
		}
		return best
	}
	few, many := least(500), least(10_000)
	if many > 100*few {
		t.Errorf("a table of 500 claims takes %s, one of 10,000 %s", few, many)
	}
}
