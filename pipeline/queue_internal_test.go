package pipeline

import (
	"fmt"
	"testing"
)

// While one waits, any number may come and go: the queue does not grow.
func TestMemoryIsThatOfTheWaiting(t *testing.T) {
	q, err := NewQueue(Priority)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 {
		id := fmt.Sprint(i)
		if _, err := q.Join(Run{ID: id}); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			q.Leave(id)
		}
		if most := 2*q.waiting + 17; len(q.byAge) > most || len(q.best) > most || len(q.known) > 2 {
			t.Fatalf("%d wait: %d by age, %d by priority, %d known", q.waiting, len(q.byAge), len(q.best), len(q.known))
		}
	}
}
