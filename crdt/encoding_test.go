package crdt_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-io/holdfast/crdt"
)

// corpus is one encoding of each type.
func corpus() map[string][]byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	all := map[string][]byte{}
	for name, r := range map[string]replica{"gcounter": &gcounter{}, "pncounter": &pncounter{}, "gset": &gset{}, "orset": &orset{}, "register": &register{}, "map": &lwwmap{}} {
		for i := range 12 {
			r.act(rnd, actor(i%3), &model{ops: map[int]op{}})
		}
		all[name] = r.state()
	}
	return all
}

// decodeInto decodes into a value that is not empty and reports whether it changed.
func decodeInto(name string, b []byte) (changed bool, again []byte, err error) {
	rnd := rand.New(rand.NewPCG(8, 2))
	try := func(r replica, decode func([]byte) error) {
		r.act(rnd, actor(7), &model{ops: map[int]op{}})
		before := r.state()
		err = decode(b)
		again = r.state()
		changed = !bytes.Equal(before, again)
	}
	switch name {
	case "gcounter":
		r := &gcounter{}
		try(r, r.Decode)
	case "pncounter":
		r := &pncounter{}
		try(r, r.Decode)
	case "gset":
		r := &gset{}
		try(r, r.Decode)
	case "orset":
		r := &orset{}
		try(r, r.Decode)
	case "register":
		r := &register{}
		try(r, r.Decode)
	case "map":
		r := &lwwmap{}
		try(r, r.Decode)
	}
	return changed, again, err
}

// What is cut off, flipped in one bit, longer or of another kind is refused and changes
// nothing.
func TestBadEncodings(t *testing.T) {
	for name, good := range corpus() {
		if _, again, err := decodeInto(name, good); err != nil || !bytes.Equal(again, good) {
			t.Fatalf("%s: %v", name, err)
		}
		bad := func(what string, b []byte) {
			if changed, _, err := decodeInto(name, b); !errors.Is(err, crdt.ErrDecode) || changed {
				t.Errorf("%s, %s: error %v, changed %v", name, what, err, changed)
			}
		}
		for i := range good {
			bad("cut", good[:i])
		}
		for bit := range len(good) * 8 {
			flipped := bytes.Clone(good)
			flipped[bit/8] ^= 1 << (bit % 8)
			bad("flipped", flipped)
		}
		bad("longer", append(bytes.Clone(good), 0))
		for other, b := range corpus() {
			if other != name {
				bad("of another kind", b)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, b := range corpus() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name := range corpus() {
			changed, again, err := decodeInto(name, b)
			if err != nil && changed {
				t.Errorf("%s: refused, and yet it changed", name)
			}
			if err == nil {
				if _, twice, err := decodeInto(name, again); err != nil || !bytes.Equal(twice, again) {
					t.Errorf("%s: what was decoded does not come back: %v", name, err)
				}
			}
		}
	})
}
