package core_test

import (
	"fmt"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Two sessions want one lock; the second is told when the first lets go.
func Example() {
	m := core.New(core.Config{})
	alice, bob := core.SessionID{1}, core.SessionID{2}
	apply := func(now int64, session core.SessionID, commands ...core.Command) {
		frame := core.AppendFrame(nil, &core.Frame{Session: session, Commands: commands})
		var out core.Output
		if err := m.Apply(core.AppendEntry(nil, &core.Entry{Now: now, Frames: [][]byte{frame}}), &out); err != nil {
			fmt.Println(err)
		}
		for _, e := range out.Events {
			fmt.Printf("%d.%d %v:%v %q\n", e.Revision, e.Ordinal, e.Kind, e.Verb, e.Name)
		}
		for _, p := range out.Pushes {
			fmt.Printf("told session %d: claim %d has token %d\n", p.Session[0], p.Seq, p.Token)
		}
	}
	open := core.Command{Op: core.OpOpen, TTL: 30e9}
	acquire := core.Command{Op: core.OpAcquire, Seq: 1, Wants: []core.Want{{Name: "jobs", Kind: core.Mutex}}}
	apply(0, alice, open, acquire)
	apply(1e9, bob, open, acquire)
	apply(2e9, alice, core.Command{Op: core.OpRelease, Seq: 2, Target: 1})
	// Output:
	// 1.0 session:opened ""
	// 2.0 lock:acquired "jobs"
	// 3.0 session:opened ""
	// 4.0 lock:queued "jobs"
	// 5.0 lock:released "jobs"
	// 6.0 lock:acquired "jobs"
	// told session 2: claim 1 has token 6
}
