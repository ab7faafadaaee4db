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
// twenty times as much, not four hundred times. Twenty small tables are read beside one
// large one, so that a busy machine interrupts both alike.
func TestTableOfManyWaits(t *testing.T) {
	read := func(n, times int) func() time.Duration {
		a, m := crowd(n)
		return func() time.Duration {
			began := time.Now()
			for range times {
				a.table(m)
			}
			return time.Since(began)
		}
	}
	small, large := read(500, 20), read(10_000, 1)
	few, many := time.Hour, time.Hour
	for range 20 {
		few, many = min(few, small()), min(many, large())
	}
	if many > 5*few {
		t.Errorf("twenty tables of 500 claims take %s, one of 10,000 %s", few, many)
	}
}
