package core

import "math/bits"

// node is the head of every stored record: where it lies, whether it is in use,
// and the newest view that need not save it any more.
type node struct {
	slot uint32
	seen uint32
	live bool
}

func (n *node) head() *node { return n }

const pageLen = 128

// slab holds records of one type in pages, so that a record has a fixed place,
// costs no allocation of its own, and all of them can be walked in steps. A new
// record takes the lowest free place: equal machines lay out their records in
// the same way, whatever their past. A page without records is given back, but for
// one: records made and ended in turn must not make and end a page.
type slab[T any, P interface {
	*T
	head() *node
}] struct {
	pages []*[pageLen]T
	used  []uint8 // records in each page
	spare *[pageLen]T
	free  slots
	n     uint32 // slots that were ever in use
}

// at returns the record at a slot, in use or not; nil if its whole page is not.
func (s *slab[T, P]) at(slot uint32) P {
	if page := s.pages[slot/pageLen]; page != nil {
		return &page[slot%pageLen]
	}
	return nil
}

// alloc returns a zero record that no view up to epoch has to save.
func (s *slab[T, P]) alloc(epoch uint32) P {
	slot, ok := s.free.lowest()
	if ok {
		s.free.remove(slot)
	} else {
		slot = s.n
	}
	return s.take(slot, epoch)
}

func (s *slab[T, P]) take(slot, epoch uint32) P {
	page := int(slot / pageLen)
	for len(s.pages) <= page {
		s.pages, s.used = append(s.pages, nil), append(s.used, 0)
	}
	if s.pages[page] == nil {
		s.pages[page] = s.newPage()
	}
	s.used[page]++
	s.n = max(s.n, slot+1)
	p := s.at(slot)
	*p.head() = node{slot: slot, seen: epoch, live: true}
	return p
}

func (s *slab[T, P]) newPage() *[pageLen]T {
	if page := s.spare; page != nil {
		s.spare = nil
		return page
	}
	return new([pageLen]T)
}

// place returns a zero record at that slot, for restoring; nil if it is taken.
// Gaps become free when all records are placed.
func (s *slab[T, P]) place(slot uint32) P {
	if slot < s.n {
		if p := s.at(slot); p != nil && p.head().live {
			return nil
		}
	}
	return s.take(slot, 0)
}

// placed makes the gaps free.
func (s *slab[T, P]) placed() {
	s.free.fill(s.n)
	s.each(func(p P) { s.free.remove(p.head().slot) })
}

// release gives the record's place back.
func (s *slab[T, P]) release(p P) {
	h := *p.head()
	var zero T
	*p = zero
	*p.head() = node{slot: h.slot, seen: h.seen}
	s.free.add(h.slot)
	page := h.slot / pageLen
	if s.used[page]--; s.used[page] == 0 {
		s.spare, s.pages[page] = s.pages[page], nil
	}
}

// each calls f with every record in use.
func (s *slab[T, P]) each(f func(P)) {
	for _, page := range s.pages {
		if page == nil {
			continue
		}
		for i := range page {
			if p := P(&page[i]); p.head().live {
				f(p)
			}
		}
	}
}

// slots is a set of slot numbers: a bit each, and above every level of words
// one with a bit for each word that is not zero.
type slots struct{ levels [][]uint64 }

func (s *slots) add(slot uint32) {
	for level := 0; ; level++ {
		if level == len(s.levels) {
			s.grow()
		}
		word := int(slot / 64)
		for len(s.levels[level]) <= word {
			s.levels[level] = append(s.levels[level], 0)
		}
		old := s.levels[level][word]
		s.levels[level][word] = old | 1<<(slot%64)
		if old != 0 || level == len(s.levels)-1 && word == 0 {
			return
		}
		slot = uint32(word)
	}
}

// grow adds a level, which so far has at most one word below it.
func (s *slots) grow() {
	top := []uint64{0}
	if k := len(s.levels); k > 0 && s.levels[k-1][0] != 0 {
		top[0] = 1
	}
	s.levels = append(s.levels, top)
}

func (s *slots) remove(slot uint32) {
	for level := range s.levels {
		word := slot / 64
		s.levels[level][word] &^= 1 << (slot % 64)
		if s.levels[level][word] != 0 {
			return
		}
		slot = word
	}
}

// fill makes the set all numbers below n.
func (s *slots) fill(n uint32) {
	s.levels = nil
	for n > 0 {
		words := make([]uint64, (n+63)/64)
		for i := range words {
			words[i] = ^uint64(0)
		}
		if n%64 != 0 {
			words[len(words)-1] = 1<<(n%64) - 1
		}
		s.levels = append(s.levels, words)
		if len(words) == 1 {
			return
		}
		n = uint32(len(words))
	}
}

// lowest is the least member.
func (s *slots) lowest() (uint32, bool) {
	if len(s.levels) == 0 {
		return 0, false
	}
	slot := uint32(0)
	for level := len(s.levels) - 1; level >= 0; level-- {
		w := s.levels[level][slot]
		if w == 0 {
			return 0, false
		}
		slot = slot*64 + uint32(bits.TrailingZeros64(w))
	}
	return slot, true
}
