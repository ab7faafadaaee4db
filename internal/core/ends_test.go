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

// Promise: sessions that end in an entry which has used up its budget, beside one that leaves a rest.
func TestEndsBeyondTheBudget(t *testing.T) {
	m := core.New(core.Config{Budget: 4})
	frame := func(id byte, c core.Command) []byte {
		return core.AppendFrame(nil, &core.Frame{Session: core.SessionID{id}, Attempt: 1, Mark: 1, Commands: []core.Command{c}})
	}
	apply := func(frames ...[]byte) {
		if err := m.Apply(core.AppendEntry(nil, &core.Entry{Now: 1, Frames: frames}), nil); err != nil {
			t.Fatal(err)
		}
	}
	puts := make([]core.KeyOp, 100)
	for i := range puts {
		puts[i] = core.KeyOp{Kind: core.KeyPut, Key: fmt.Sprint("key ", i), Session: core.SessionID{1}}
	}
	open, end := core.Command{Op: core.OpOpen, TTL: 3600e9}, core.Command{Op: core.OpEnd}
	apply(frame(1, open), frame(2, open), frame(3, open))
	apply(frame(1, core.Command{Op: core.OpTxn, Seq: 1, Then: puts}))
	apply(frame(1, end))
	if !m.Behind() {
		t.Fatal("it leaves no rest")
	}
	apply(frame(2, end), frame(3, end))
	for n := 0; m.Behind(); n++ {
		if apply(); n > 100 {
			t.Fatal("the rest does not end")
		}
	}
}
