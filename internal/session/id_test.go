package session_test

import (
	"math"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// The ids of clients and those of the server never meet.
func TestReservedIDs(t *testing.T) {
	for _, high := range []uint64{0, 1, math.MaxUint64 >> 1, math.MaxUint64} {
		if id := session.NewID(high, math.MaxUint64); session.Reserved(id) {
			t.Errorf("NewID(%x) is the server's", high)
		}
	}
	if a, b := session.NewID(2, 1), session.NewID(4, 1); a == b {
		t.Error("different bits make the same id")
	}
	var id core.SessionID
	for i := range id {
		id[i] = byte(i)
	}
	made := session.Reserve(id)
	if !session.Reserved(made) || session.Reserved(id) || [14]byte(made[2:]) != [14]byte(id[2:]) {
		t.Errorf("Reserve makes %x of %x", made, id)
	}
}
