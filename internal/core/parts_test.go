package core_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// allocated is how many bytes f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// repeated is commands of one sort until a frame has no room for more.
func repeated(c core.Command) []core.Command {
	one := len(core.AppendFrame(nil, &core.Frame{Commands: []core.Command{c}})) - len(core.AppendFrame(nil, &core.Frame{}))
	return slices.Repeat([]core.Command{c}, (core.MaxFrame-64)/one)
}

// smallest are frames of as many parts of one kind as fit into one.
func smallest() map[string][]core.Command {
	txn := core.Command{Op: core.OpTxn, Seq: 1}
	then, els, cond := txn, txn, txn
	then.Then, els.Else, cond.If = make([]core.KeyOp, 21_000), make([]core.KeyOp, 21_000), make([]core.Compare, 2_900)
	return map[string][]core.Command{
		"commands": repeated(core.Command{Op: core.OpEnd}),
		"wants":    repeated(core.Command{Op: core.OpAcquire, Seq: 1, Wants: make([]core.Want, 1024)}),
		"then":     repeated(then), "else": repeated(els), "if": repeated(cond),
	}
}

// A frame that comes in takes no more memory than its length allows, whatever it is made
// of: one of 1 MiB took 579 MiB.
func TestNewFramesAreBounded(t *testing.T) {
	for what, commands := range smallest() {
		b := core.AppendFrame(nil, &core.Frame{Session: sessionID(1), Attempt: 7, Mark: 3, Commands: commands})
		var f core.Frame
		var err error
		took := allocated(func() { err = core.DecodeNew(b, &f) })
		if !errors.Is(err, core.ErrParts) || took > 8*len(b) {
			t.Errorf("%d bytes of %s took %d bytes: %v", len(b), what, took, err)
		}
		if f.Session != sessionID(1) || f.Attempt != 7 || f.Mark != 3 {
			t.Errorf("%s: of the frame is known %x, %d, %d", what, f.Session, f.Attempt, f.Mark)
		}
		if err := core.DecodeFrame(b, &f); err != nil { // it may be in a log
			t.Errorf("%s in a log: %v", what, err)
		}
	}
}

// As many parts as may be, and as many bytes, are taken.
func TestLargestNewFrames(t *testing.T) {
	large := core.Command{Op: core.OpTxn, Seq: 1, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k", Value: []byte(strings.Repeat("x", 60<<10))}}}
	several := core.Command{Op: core.OpAcquire, Seq: 1, Wants: make([]core.Want, 3)}
	for what, commands := range map[string][]core.Command{
		"a command each part": slices.Repeat([]core.Command{{Op: core.OpEnd}}, core.MaxParts), "1 MiB": repeated(large),
		"four parts each": slices.Repeat([]core.Command{several}, core.MaxParts/4),
	} {
		b := core.AppendFrame(nil, &core.Frame{Commands: commands})
		if err := core.DecodeNew(b, &core.Frame{}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		more := append(commands[:len(commands)/2:len(commands)/2], slices.Repeat([]core.Command{{Op: core.OpEnd}}, core.MaxParts)...)
		if err := core.DecodeNew(core.AppendFrame(nil, &core.Frame{Commands: more}), &core.Frame{}); !errors.Is(err, core.ErrParts) {
			t.Errorf("half of %s, and more: %v", what, err)
		}
	}
}

// Room that a long list took is not kept, at whatever place it stood.
func TestFramesKeepLittleRoom(t *testing.T) {
	var f core.Frame
	for i := range 256 {
		commands := slices.Repeat([]core.Command{{Op: core.OpEnd}}, i)
		commands = append(commands, core.Command{Op: core.OpTxn, Seq: 1, Then: make([]core.KeyOp, 2000), Else: make([]core.KeyOp, 1000)})
		if err := core.DecodeNew(core.AppendFrame(nil, &core.Frame{Commands: commands}), &f); err != nil {
			t.Fatal(err)
		}
	}
	if err := core.DecodeNew(core.AppendFrame(nil, &core.Frame{}), &f); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, c := range f.Commands[:cap(f.Commands)] {
		kept += cap(c.Then) + cap(c.Else)
	}
	if kept > 256*32 {
		t.Errorf("room is kept for %d operations", kept)
	}
}
