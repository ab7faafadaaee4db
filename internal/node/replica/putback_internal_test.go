package replica

import "testing"

// A batch that raft did not take goes back before what has come meanwhile, and
// nothing of either is lost.
func TestPutBack(t *testing.T) {
	n := &Node{}
	for i := range 6 {
		n.waiting.add(&item{caller: Caller(i), frame: []byte{1}})
	}
	batch := n.waiting.batch(3 * (&item{frame: []byte{1}}).size())
	if len(batch) != 3 {
		t.Fatalf("the batch has %d items, want 3", len(batch))
	}
	n.putBack(batch)
	all := n.waiting.take()
	if len(all) != 6 {
		t.Fatalf("%d items wait, want 6", len(all))
	}
	for i := range all {
		if all[i].caller != Caller(i) {
			t.Errorf("place %d is item %d's", i, all[i].caller)
		}
	}
}
