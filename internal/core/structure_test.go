package core

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// The heap gives things in order of time and name, however they were moved.
func TestHeap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	var h heap[*thing]
	at := map[*thing]int64{}
	var all []*thing
	for i := range 500 {
		all = append(all, &thing{name: fmt.Sprintf("%04d", i)})
	}
	for range 5000 {
		x := all[r.IntN(len(all))]
		if r.IntN(3) == 0 {
			h.remove(x)
			delete(at, x)
			continue
		}
		at[x] = int64(r.IntN(50))
		h.set(x, at[x])
	}
	last := timer[*thing]{at: -1}
	for n := len(at); n > 0; n-- {
		when, x, ok := h.top()
		next := timer[*thing]{when, x}
		if !ok || at[x] != when || last.it != nil && less(next, last) {
			t.Fatalf("%d %v comes after %d", when, x, last.at)
		}
		last = next
		h.remove(x)
	}
	if _, _, ok := h.top(); ok {
		t.Error("something is left")
	}
}

// The set of free slots always gives the lowest.
func TestSlots(t *testing.T) {
	for _, size := range []int{1, 63, 64, 65, 4096, 4097, 300_000} {
		r := rand.New(rand.NewPCG(uint64(size), 0))
		var s slots
		want := map[uint32]bool{}
		if r.IntN(2) == 0 {
			s.fill(uint32(size))
			for i := range size {
				want[uint32(i)] = true
			}
		}
		for range 2000 {
			x := uint32(r.IntN(size))
			if want[x] {
				s.remove(x)
			} else {
				s.add(x)
			}
			want[x] = !want[x]
		}
		for n := 0; n < 200; n++ {
			low, ok := s.lowest()
			for x := range low {
				if want[x] {
					t.Fatalf("size %d: %d is lower than %d", size, x, low)
				}
			}
			if !ok {
				if slices.Contains(slices.Collect(maps.Values(want)), true) {
					t.Fatalf("size %d: it is not empty", size)
				}
				break
			}
			if !want[low] {
				t.Fatalf("size %d: %d is not in it", size, low)
			}
			s.remove(low)
			want[low] = false
		}
	}
}
