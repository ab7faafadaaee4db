package replica_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/server/replica"
	"github.com/holdfast-io/holdfast/session"
)

// BenchmarkCommands is 1,024 sessions on eight streams that lock and unlock on a
// node alone with a disk that takes no time: what a command costs in the node
// itself.
func BenchmarkCommands(b *testing.B) {
	const sessions, streams = 1024, 8
	n, err := replica.New(replica.Config{ID: 1, MinTTL: 1}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		b.Fatal(err)
	}
	settle(n)
	cmds := make([]core.Command, 1)
	send := func(i int, mark uint64, cmd core.Command) {
		var id core.SessionID
		binary.LittleEndian.PutUint32(id[:], uint32(i+1))
		cmds[0] = cmd
		body := core.AppendFrame(make([]byte, 0, 96), &core.Frame{Session: id, Attempt: mark, Mark: mark, Commands: cmds})
		data := session.AppendMessage(make([]byte, 0, 128), &session.Message{Kind: session.KindFrame, Session: id, Stream: 1, Body: body})
		if err := n.Receive(0, replica.Caller(i%streams+1), data); err != nil {
			b.Fatal(err)
		}
	}
	names := make([]string, sessions)
	for i := range sessions {
		names[i] = fmt.Sprintf("bench/some-lock-%08d", i)
		var id core.SessionID
		binary.LittleEndian.PutUint32(id[:], uint32(i+1))
		attach := session.AppendMessage(nil, &session.Message{Kind: session.KindAttach, Session: id, Stream: 1})
		if err := n.Receive(0, replica.Caller(i%streams+1), attach); err != nil {
			b.Fatal(err)
		}
		settle(n)
		send(i, 1, core.Command{Op: core.OpOpen, TTL: 24 * 3600e9, Window: 1024})
	}
	settle(n)
	wants := make([]core.Want, 1)
	seq := uint64(1)
	for b.Loop() {
		for i := range sessions {
			wants[0] = core.Want{Name: names[i], Kind: core.Mutex}
			send(i, seq, core.Command{Op: core.OpAcquire, Seq: seq, Wants: wants})
		}
		settle(n)
		for i := range sessions {
			send(i, seq+1, core.Command{Op: core.OpRelease, Seq: seq + 1, Target: seq})
		}
		settle(n)
		seq += 2
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*sessions), "ns/command")
}
