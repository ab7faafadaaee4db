package replica_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/session"
)

const benchSessions, benchStreams = 1024, 8

// commands sends what sessions ask a node alone for.
type commands struct {
	b     *testing.B
	n     *replica.Node
	cmds  [1]core.Command
	wants [1]core.Want
}

func (c *commands) receive(i int, m session.Message) {
	binary.LittleEndian.PutUint32(m.Session[:], uint32(i+1))
	m.Stream = 1
	data := session.AppendMessage(make([]byte, 0, 160), &m)
	if err := c.n.Receive(0, replica.Caller(i%benchStreams+1), data); err != nil {
		c.b.Fatal(err)
	}
}

func (c *commands) send(i int, mark uint64, cmd core.Command) {
	c.cmds[0] = cmd
	f := core.Frame{Attempt: mark, Mark: mark, Commands: c.cmds[:]}
	binary.LittleEndian.PutUint32(f.Session[:], uint32(i+1))
	c.receive(i, session.Message{Kind: session.KindFrame, Body: core.AppendFrame(make([]byte, 0, 96), &f)})
}

func (c *commands) open() {
	for i := range benchSessions {
		c.receive(i, session.Message{Kind: session.KindAttach})
		settle(c.n)
		c.send(i, 1, core.Command{Op: core.OpOpen, TTL: 24 * 3600e9, Window: 1024})
	}
	settle(c.n)
}

// pairs locks and unlocks once for every session.
func (c *commands) pairs(seq uint64, names []string) {
	for i := range names {
		c.wants[0] = core.Want{Name: names[i], Kind: core.Mutex}
		c.send(i, seq, core.Command{Op: core.OpAcquire, Seq: seq, Wants: c.wants[:]})
	}
	settle(c.n)
	for i := range names {
		c.send(i, seq+1, core.Command{Op: core.OpRelease, Seq: seq + 1, Target: seq})
	}
	settle(c.n)
}

// BenchmarkCommands is 1,024 sessions on eight streams that lock and unlock on a
// node alone with a disk that takes no time: what a command costs in the node
// itself.
func BenchmarkCommands(b *testing.B) {
	n, err := replica.New(replica.Config{ID: 1, MinTTL: 1}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		b.Fatal(err)
	}
	settle(n)
	c := &commands{b: b, n: n}
	c.open()
	names := make([]string, benchSessions)
	for i := range names {
		names[i] = fmt.Sprintf("bench/some-lock-%08d", i)
	}
	seq := uint64(1)
	for b.Loop() {
		c.pairs(seq, names)
		seq += 2
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*benchSessions), "ns/command")
}
