package core_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Promise: an entry that ends many keys makes the room for what it tells once: to grow by and
// by took a quarter of its time, and most of the garbage.
func TestEndsMakeRoomOnce(t *testing.T) {
	m, id, seq := core.New(core.Config{}), core.SessionID{1}, uint64(0)
	apply := func(out *core.Output, commands ...core.Command) {
		f := core.AppendFrame(nil, &core.Frame{Session: id, Attempt: 1, Mark: max(seq, 1), Commands: commands})
		if err := m.Apply(core.AppendEntry(nil, &core.Entry{Now: 1, Frames: [][]byte{f}}), out); err != nil {
			t.Fatal(err)
		}
	}
	apply(nil, core.Command{Op: core.OpOpen, TTL: 3600e9})
	for seq = 1; seq <= 150; seq++ {
		puts := make([]core.KeyOp, 100)
		for i := range puts {
			puts[i] = core.KeyOp{Kind: core.KeyPut, Key: fmt.Sprintf("key %03d %03d", seq, i), Session: id}
		}
		apply(nil, core.Command{Op: core.OpTxn, Seq: seq, Then: puts})
	}
	apply(nil, core.Command{Op: core.OpEnd})
	var out core.Output
	if err := m.Apply(core.AppendEntry(nil, &core.Entry{Now: 1}), &out); err != nil {
		t.Fatal(err)
	}
	if n, room := len(out.Events), cap(out.Events); n < 4_999 || room > n+n/20 {
		t.Errorf("%d events, with room for %d", n, room)
	}
}
