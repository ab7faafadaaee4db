package check_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/check"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

var a, b = core.SessionID{'A'}, core.SessionID{'B'}

// frame is one frame of commands, numbered from seq on.
func frame(id core.SessionID, seq uint64, commands ...core.Command) core.Frame {
	for i := range commands {
		if commands[i].Op != core.OpOpen {
			commands[i].Seq = seq
			seq++
		}
	}
	return core.Frame{Session: id, Commands: commands}
}

func lock(kind core.Kind, mode core.Mode, weight, limit int64) core.Command {
	return core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "x", Kind: kind, Mode: mode, Weight: weight, Limit: limit}}}
}

func opened(id core.SessionID) core.Frame {
	return frame(id, 0, core.Command{Op: core.OpOpen, TTL: 30e9})
}

// TestComplains: every promise that is broken in what a machine puts out is
// noticed.
func TestComplains(t *testing.T) {
	mutex := lock(core.Mutex, core.Exclusive, 0, 0)
	slots := lock(core.Semaphore, core.Shared, 2, 3)
	quick := mutex
	quick.Wait = 1e9
	brief := mutex
	brief.MaxHold = 1e9
	tests := []struct {
		name   string
		frames []core.Frame // after both sessions are open
		at     int64        // a stamp, later
		spoil  func(*twin.Output)
		want   string
	}{
		{"exclusion", []core.Frame{frame(a, 1, mutex), frame(b, 1, mutex)}, 0, grantSecond, "holds"},
		{"capacity", []core.Frame{frame(a, 1, slots), frame(b, 1, slots)}, 0, grantSecond, "in use of"},
		{"overtaking", []core.Frame{frame(a, 1, mutex), frame(b, 1, mutex), frame(a, 2, core.Command{Op: core.OpRelease, Target: 1}, mutex)}, 0, swapGrant, "came earlier"},
		{"same token", []core.Frame{frame(a, 1, mutex, core.Command{Op: core.OpRelease, Target: 1}, mutex)}, 0, sameToken, "token 3"},
		{"early end", []core.Frame{frame(a, 1, mutex)}, 0, expireFirst, "believes until"},
		{"late end", []core.Frame{frame(a, 1, mutex)}, 31e9, func(o *twin.Output) { o.Events = nil }, "lives at"},
		{"late wait", []core.Frame{frame(a, 1, mutex), frame(b, 1, quick)}, 2e9, func(o *twin.Output) { o.Pushes = nil }, "still waits"},
		{"late hold", []core.Frame{frame(a, 1, brief)}, 2e9, func(o *twin.Output) { o.Events = nil }, "although that ended"},
		{"deadline back", []core.Frame{frame(a, 1, mutex)}, 0, func(o *twin.Output) { o.Replies[0].Deadline = 5 }, "went back"},
		{"wrong time", []core.Frame{frame(a, 1, mutex)}, 0, func(o *twin.Output) { o.Replies[0].Now = 7 }, "says now"},
		{"silent change", []core.Frame{frame(a, 1, mutex), frame(b, 1, slots)}, 0, func(o *twin.Output) { o.Events[len(o.Events)-1].Revision += 2 }, "no event tells"},
		{"push to nobody", []core.Frame{frame(a, 1, mutex)}, 0, pushSeven, "no claim"},
		{"order of events", []core.Frame{frame(a, 1, mutex, core.Command{Op: core.OpRelease, Target: 1})}, 0, olderEvent, "comes after"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := play(tt.frames, tt.at, tt.spoil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if err := play(tt.frames, tt.at, func(*twin.Output) {}); err != nil {
				t.Errorf("complains about a good machine: %v", err)
			}
		})
	}
}

// play applies the frames on a twin, and a stamp if there is one, and spoils what
// the last entry puts out.
func play(frames []core.Frame, at int64, spoil func(*twin.Output)) error {
	tw := twin.New(twin.Config{Budget: 100, Window: 100, Waiters: 100})
	var k check.Checker
	start := twin.Entry{Frames: []core.Frame{opened(a), opened(b)}}
	if err := k.Entry(start, tw.Apply(start)); err != nil {
		return fmt.Errorf("at the start: %w", err)
	}
	e := twin.Entry{Frames: frames}
	out := tw.Apply(e)
	if at > 0 {
		if err := k.Entry(e, out); err != nil {
			return fmt.Errorf("before the stamp: %w", err)
		}
		e = twin.Entry{Now: at}
		out = tw.Apply(e)
	}
	spoil(&out)
	return k.Entry(e, out)
}

// grantSecond grants what was queued behind the first.
func grantSecond(o *twin.Output) {
	o.Replies[1].Results[0].Code, o.Replies[1].Results[0].Token = core.CodeOK, 4
	o.Events[1].Verb, o.Events[1].Token = core.VerbAcquired, o.Events[1].Revision
}

// swapGrant gives the second claim of A what was B's.
func swapGrant(o *twin.Output) {
	o.Replies[2].Results[1].Code, o.Replies[2].Results[1].Token = core.CodeOK, o.Pushes[0].Token
	for i := range o.Events {
		if o.Events[i].Token == o.Pushes[0].Token {
			o.Events[i].Session = a
		}
	}
	o.Pushes = nil
}

func sameToken(o *twin.Output) {
	o.Replies[0].Results[2].Token = 3
	o.Events[2].Token = 3
}

func expireFirst(o *twin.Output) {
	e := o.Events[0]
	e.Verb, e.Ordinal = core.VerbExpired, 1
	o.Events = append(o.Events, e)
}

func pushSeven(o *twin.Output) {
	o.Pushes = append(o.Pushes, core.Push{Session: a, Seq: 7, State: core.ClaimGranted})
}

func olderEvent(o *twin.Output) { o.Events[1].Revision = 1 }

func ExampleChecker() {
	tw := twin.New(twin.Config{Budget: 100, Window: 100, Waiters: 100})
	e := twin.Entry{Frames: []core.Frame{opened(a), frame(a, 1, lock(core.Mutex, core.Exclusive, 0, 0))}}
	out := tw.Apply(e)
	var k check.Checker
	fmt.Println(k.Entry(e, out))
	again := twin.Entry{Frames: []core.Frame{opened(b), frame(b, 1, lock(core.Mutex, core.Exclusive, 0, 0))}}
	out = tw.Apply(again)
	grantSecond(&out)
	fmt.Println(k.Entry(again, out))
	// Output:
	// <nil>
	// event 4.0 lock:acquired x: token 4 granted while token 2 holds (ghost false until 0, now 0)
}
