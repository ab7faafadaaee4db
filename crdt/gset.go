package crdt

import (
	"maps"
	"slices"
)

// GSet is a set that only grows. The zero value is empty.
type GSet struct{ has map[string]struct{} }

// Add adds the elements and returns the delta for the others: those that were new.
func (s *GSet) Add(elements ...string) GSet {
	var d GSet
	for _, e := range elements {
		if s.put(e) {
			d.put(e)
		}
	}
	return d
}

func (s *GSet) put(e string) bool {
	if _, ok := s.has[e]; ok {
		return false
	}
	if s.has == nil {
		s.has = map[string]struct{}{}
	}
	s.has[e] = struct{}{}
	return true
}

// Has reports that e is in the set.
func (s *GSet) Has(e string) bool {
	_, ok := s.has[e]
	return ok
}

// Len is how many elements there are.
func (s *GSet) Len() int { return len(s.has) }

// Elements are the elements in order.
func (s *GSet) Elements() []string { return slices.Sorted(maps.Keys(s.has)) }

// Merge joins what another node knows and reports whether anything was new.
func (s *GSet) Merge(o GSet) (changed bool) {
	for e := range o.has {
		if s.put(e) {
			changed = true
		}
	}
	return changed
}

// State is the whole set as a delta.
func (s *GSet) State() GSet { return GSet{has: maps.Clone(s.has)} }
