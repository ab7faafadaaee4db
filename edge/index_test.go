package edge

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestIndex: keys that come and go, few and many, are found as in a map, and none that are not there.
func TestIndex(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 9))
		s, model := &shard{}, map[string]*entry{}
		for step := range 4000 {
			key := fmt.Sprint(rng.IntN(1500))
			e := s.find(key)
			if e != model[key] {
				t.Fatalf("seed %d, step %d: %q is %v, not %v", seed, step, key, e, model[key])
			}
			switch {
			case e == nil && (step/1000)%2 == 0: // it grows, and then shrinks
				e = &entry{key: key}
				s.put(e)
				model[key] = e
			case e != nil && (step/1000)%2 == 1:
				s.drop(e)
				delete(model, key)
			}
		}
		for key, e := range model {
			if s.find(key) != e || s.all[e.pos] != e {
				t.Fatalf("seed %d: %q is lost", seed, key)
			}
		}
		for len(s.all) > 0 {
			s.drop(s.all[rng.IntN(len(s.all))])
		}
		if s.index != nil || s.find("0") != nil {
			t.Fatalf("seed %d: %d places are left of no keys", seed, len(s.index))
		}
	}
}
