package replica

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// waitingModel is a queue beside what waits in it, by number.
type waitingModel struct {
	queue
	renewals, frames []item
	next             uint64
	flying           [][]item // room that is given back later
}

func (m *waitingModel) add(r *rand.Rand) {
	m.next++
	i := item{caller: Caller(m.next), commands: r.IntN(4), short: r.IntN(3) == 0}
	if r.IntN(2) == 0 {
		i.frame = make([]byte, 1+r.IntN(200))
		m.frames = append(m.frames, i)
	} else {
		i.renewal = core.Renewal{Attempt: m.next}
		m.renewals = append(m.renewals, i)
	}
	m.queue.add(&i)
}

// batch takes what fits: renewals first, each list in order, at least one item.
func (m *waitingModel) take(t *testing.T, limit int) {
	t.Helper()
	var want []item
	room := limit
	for _, list := range []*[]item{&m.renewals, &m.frames} {
		for len(*list) > 0 && (len(want) == 0 || (*list)[0].size() <= room) {
			room -= (*list)[0].size()
			want, *list = append(want, (*list)[0]), (*list)[1:]
		}
	}
	got := m.batch(limit)
	if len(got) != len(want) {
		t.Fatalf("a batch of %d bytes has %d items, want %d", limit, len(got), len(want))
	}
	for i := range got {
		if got[i].caller != want[i].caller || fmt.Sprint(got[i].frame) != fmt.Sprint(want[i].frame) {
			t.Fatalf("item %d of a batch is that of %d, want %d", i, got[i].caller, want[i].caller)
		}
	}
	if len(got) > 0 {
		m.flying = append(m.flying, got)
	}
}

// settle gives the room of a batch back.
func (m *waitingModel) settle() {
	if len(m.flying) > 0 {
		m.reuse(m.flying[0])
		m.flying = m.flying[1:]
	}
}

func (m *waitingModel) check(t *testing.T) {
	t.Helper()
	var want queue
	for _, list := range [][]item{m.renewals, m.frames} {
		for i := range list {
			want.count(&list[i], 1)
		}
	}
	if m.len() != len(m.renewals)+len(m.frames) || m.bytes != want.bytes || m.commands != want.commands || m.urgent != want.urgent {
		t.Fatalf("%d items of %d bytes and %d commands, %d urgent; want %d, %d, %d, %d", m.len(), m.bytes, m.commands, m.urgent,
			len(m.renewals)+len(m.frames), want.bytes, want.commands, want.urgent)
	}
}

// Everything that waits is proposed once and in order, renewals first, in batches that
// fit, however much waits and however room is used again.
func TestQueueSizes(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 100, 1000, 5000, 100_000} {
		m, r := &waitingModel{}, rand.New(rand.NewPCG(uint64(n), 0))
		for i := range n {
			if m.add(r); i%50 == 49 {
				m.take(t, 1+r.IntN(4000))
			}
			if r.IntN(30) == 0 {
				m.settle()
			}
			if n < 200 || i%(n/8) == 0 {
				m.check(t)
			}
		}
		for m.check(t); m.len() > 0; m.settle() {
			m.take(t, 1+r.IntN(10_000))
		}
		m.check(t)
	}
}
