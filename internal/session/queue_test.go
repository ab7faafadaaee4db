package session

import (
	goflag "flag"
	"testing"
)

var fullModels = goflag.Bool("session.models", false, "drive every container through every size instead of a share of them")

// queueModel is a queue beside a model of it: the number of the first item, and all items.
type queueModel struct {
	numbered[int]
	first uint64
	items []int
	value int
}

func (m *queueModel) put(t testing.TB) {
	m.value++
	if n := m.push(m.value); n != m.first+uint64(len(m.items)) {
		t.Fatalf("item %d has number %d", m.value, n)
	}
	m.items = append(m.items, m.value)
}

func (m *queueModel) take() {
	m.drop()
	m.first++
	m.items = m.items[1:]
}

func (m *queueModel) check(t testing.TB) {
	t.Helper()
	if m.next() != m.first+uint64(len(m.items)) || len(m.all()) != len(m.items) {
		t.Fatalf("%d items up to %d, want %d from %d on", len(m.all()), m.next(), len(m.items), m.first)
	}
	for i, want := range m.items {
		if got := m.at(m.first + uint64(i)); got == nil || *got != want || m.all()[i] != want {
			t.Fatalf("number %d is %v, want %d", m.first+uint64(i), got, want)
		}
	}
	if m.first > 0 && m.at(m.first-1) != nil || m.at(m.next()) != nil {
		t.Fatal("an item is found that is not there")
	}
	for i, dropped := range m.numbered.items[:m.head] {
		if dropped != 0 {
			t.Fatalf("a dropped item is kept %d places before the first", m.head-i)
		}
	}
}

// TestQueueSizes: a queue is filled and drained, at once and in waves.
func TestQueueSizes(t *testing.T) {
	sizes := []int{0, 1, 2, 31, 32, 33, 63, 64, 65, 1000, 10_000}
	if *fullModels {
		sizes = []int{65_536, 100_000}
		for n := range 2000 {
			sizes = append(sizes, n)
		}
	}
	for _, n := range sizes {
		for _, wave := range []int{1, 2, 3, 7} { // n come, then n-n/wave go, and so on
			m := &queueModel{}
			for range 3 {
				for range n {
					m.put(t)
				}
				m.check(t)
				for k := range len(m.items) - n/wave {
					if m.take(); k%(n/8+1) == 0 {
						m.check(t)
					}
				}
				m.check(t)
			}
			for len(m.items) > 0 {
				m.take()
			}
			m.check(t)
			m.put(t)
			m.clear()
			m.first, m.items = m.first+1, nil
			m.check(t)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add([]byte{40, 1, 33, 2, 255, 254, 253})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &queueModel{}
		for _, x := range b {
			for range int(x)/2 + 1 {
				if x%2 == 0 {
					m.put(t)
				} else if len(m.items) > 0 {
					m.take()
				}
			}
			m.check(t)
		}
	})
}
