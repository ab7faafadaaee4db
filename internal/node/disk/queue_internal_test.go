package disk

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// queueModel is a queue beside what it has to tell: lists of the writes that are one
// job, and nil for another job.
type queueModel struct {
	Queue
	want [][]uint64
	next uint64
}

// add adds n writes, or a job that runs.
func (m *queueModel) add(n int, run bool) {
	if run {
		m.Add(Job{Run: func(*Disk) error { return nil }})
		m.want = append(m.want, nil)
		return
	}
	var j Job
	var ids []uint64
	for range n {
		m.next++
		j.Writes, ids = append(j.Writes, replica.Write{ID: m.next}), append(ids, m.next)
	}
	m.Add(j)
	if k := len(m.want); k > 0 && m.want[k-1] != nil {
		m.want[k-1] = append(m.want[k-1], ids...)
		return
	}
	m.want = append(m.want, ids)
}

func (m *queueModel) take(t *testing.T) {
	t.Helper()
	j, want := m.Next(), m.want[0]
	m.want = m.want[1:]
	var ids []uint64
	for _, w := range j.Writes {
		ids = append(ids, w.ID)
	}
	if (j.Run != nil) != (want == nil) || !slices.Equal(ids, want) || m.Len() != len(m.want) {
		t.Fatalf("a job with the writes %v, and %d left; want %v and %d", ids, m.Len(), want, len(m.want))
	}
}

// The queue tells everything once and in order, and joins writes and nothing else,
// however many wait.
func TestQueueSizes(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 100, 5000, 100_000} {
		m, r := &queueModel{}, rand.New(rand.NewPCG(uint64(n), 0))
		for i := range n {
			if m.add(1+r.IntN(3), r.IntN(2) == 0); i%7 == 6 {
				m.take(t)
			}
		}
		if m.Len() != len(m.want) {
			t.Fatalf("%d jobs, want %d", m.Len(), len(m.want))
		}
		for len(m.want) > 0 {
			m.take(t)
		}
	}
}

// What is done is not kept: its entries may be large.
func TestQueueForgets(t *testing.T) {
	var q Queue
	for range 100 {
		q.Add(Job{Writes: make([]replica.Write, 1)})
		q.Add(Job{Run: func(*Disk) error { return nil }})
	}
	all := q.jobs
	for q.Len() > 0 {
		q.Next()
	}
	for i := range all {
		if all[i].Writes != nil || all[i].Run != nil {
			t.Fatalf("job %d of %d is kept after it was done", i, len(all))
		}
	}
}
