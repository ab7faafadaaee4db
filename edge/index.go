package edge

import "hash/maphash"

// index finds the entries of a shard by key. It has 4 bytes a place, where a map has 24: that is what keeps a key of
// three nodes below 200 bytes. A place has where the entry is in the shard's list, from 1 on, and above that some bits of
// its key's hash, so that few of those which only share their place are looked at; 0: it is free. An entry is at the
// place of its hash or, if that is taken, at the first after it that was free.
type index []uint32

const (
	posBits  = 24
	maxShard = 1<<posBits - 1 // entries of a shard
	minIndex = 8
)

// seed is another in each run: keys that fall on each other cannot be made up.
var seed = maphash.MakeSeed()

// home is the place of a key's hash, and tag what a place has of it.
func (x index) home(key string) (home int, tag uint32) {
	h := maphash.String(seed, key)
	return int(h & uint64(len(x)-1)), uint32(h>>32) << posBits
}

func (x index) after(i int) int { return (i + 1) & (len(x) - 1) }

// at is where the list has the entry of a place that is not free.
func (x index) at(i int) int { return int(x[i]&maxShard) - 1 }

// place is where the key is, or where it is to be; the index is not empty.
func (s *shard) place(key string) (i int, tag uint32) {
	x := s.index
	for i, tag = x.home(key); x[i] != 0; i = x.after(i) {
		if x[i]&^maxShard == tag && s.all[x.at(i)].key == key {
			break
		}
	}
	return i, tag
}

// find is the entry of a key; nil: there is none.
func (s *shard) find(key string) *entry {
	if len(s.index) == 0 {
		return nil
	}
	if i, _ := s.place(key); s.index[i] != 0 {
		return s.all[s.index.at(i)]
	}
	return nil
}

// put adds an entry with a key that is not there.
func (s *shard) put(e *entry) {
	e.pos = int32(len(s.all))
	s.all = append(s.all, e)
	if 4*len(s.all) > 3*len(s.index) {
		s.rebuild(max(2*len(s.index), minIndex))
		return
	}
	s.enter(e)
}

// enter has the index lead to an entry, where its list has it now.
func (s *shard) enter(e *entry) {
	i, tag := s.place(e.key)
	s.index[i] = tag | uint32(e.pos+1)
}

func (s *shard) rebuild(size int) {
	s.index = make(index, size)
	for _, e := range s.all {
		s.enter(e)
	}
}

// drop takes an entry out. The last one takes the tables along, which do not shrink.
func (s *shard) drop(e *entry) {
	i, _ := s.place(e.key)
	s.free(i)
	end := len(s.all) - 1
	if last := s.all[end]; last != e {
		i, tag := s.place(last.key)
		s.index[i] = tag | uint32(e.pos+1)
		s.all[e.pos], last.pos = last, e.pos
	}
	s.all[end] = nil
	if s.all = s.all[:end]; end == 0 {
		s.all, s.index, s.dirty = nil, nil, nil
	}
}

// free frees a place, and moves those behind it that would not be found any more: up to the next that is free, each
// that is not between the freed place and its own home.
func (s *shard) free(hole int) {
	x := s.index
	for i := x.after(hole); x[i] != 0; i = x.after(i) {
		home, _ := x.home(s.all[x.at(i)].key)
		if (i-home)&(len(x)-1) >= (i-hole)&(len(x)-1) {
			x[hole], hole = x[i], i
		}
	}
	x[hole] = 0
}
