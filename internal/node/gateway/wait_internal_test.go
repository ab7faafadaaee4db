package gateway

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// crowd is a session that waits for many claims, and news of each.
func crowd(n int) (*attached, []core.Push) {
	a, news := &attached{number: 1}, []core.Push(nil)
	for seq := uint64(1); seq <= uint64(n); seq++ {
		a.waits = append(a.waits, &wait{l: &lease{}, seq: seq, done: make(chan outcome, 1)})
		news = append(news, core.Push{Seq: seq, State: core.ClaimWaiting})
	}
	return a, news
}

// News of claims are read on the node's loop: twenty times as many waits cost about
// twenty times as much, not four hundred times. Twenty small sessions are read beside one
// large one, so that a busy machine interrupts both alike.
func TestNewsOfManyWaits(t *testing.T) {
	read := func(n, times int) func() time.Duration {
		a, news := crowd(n)
		return func() time.Duration {
			began := time.Now()
			for range times {
				for i := range news {
					a.told(&news[i])
				}
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
		t.Errorf("twenty times the news of 500 claims take %s, those of 10,000 %s", few, many)
	}
}
