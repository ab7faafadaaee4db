package replica_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/session"
	"github.com/holdfast-io/holdfast/limit"
)

// fullNode is a node with a full disk, on which session 1 was opened before.
func fullNode(t *testing.T) (submit func(id core.SessionID, commands ...core.Command) core.Code) {
	t.Helper()
	n, err := replica.New(replica.Config{ID: 1}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	settle(n)
	submit = func(id core.SessionID, commands ...core.Command) core.Code {
		t.Helper()
		n.Submit(0, 1, core.AppendFrame(nil, &core.Frame{Session: id, Attempt: 1, Mark: 1, Commands: commands}))
		answers := settle(n)
		if len(answers) != 1 {
			t.Fatalf("%d answers", len(answers))
		}
		return answers[0].Code
	}
	if code := submit(core.SessionID{1}, opener); code != core.CodeOK {
		t.Fatalf("a session is refused with code %d", code)
	}
	n.SetFull(true)
	return submit
}

var (
	opener = core.Command{Op: core.OpOpen, TTL: 30e9}
	load   = core.Command{Op: core.OpCount, Seq: 1, Name: "n"}
)

// fullOps is what becomes of each operation of a session that is there, on a full disk: true, it
// is refused.
var fullOps = map[core.Op]bool{
	core.OpOpen: false, core.OpEnd: false, core.OpRelease: false, core.OpCancel: false, core.OpExtend: false, core.OpDowngrade: false,
	core.OpHandOver: false, core.OpForce: false, core.OpRevoke: false, core.OpDelete: false,
	core.OpAcquire: true, core.OpUpgrade: true, core.OpProclaim: true, core.OpResize: true, core.OpReserve: true,
	core.OpCount: false, core.OpCountDown: false, core.OpTxn: false, core.OpLimit: false, // with what makes nothing, see TestFullTakesWhatFrees
}

// Every operation that a frame can have is either one that makes nothing, and taken on a full
// disk, or refused.
func TestFullJudgesEveryOp(t *testing.T) {
	for op := core.Op(1); ; op++ {
		c := core.Command{Op: op}
		if op == core.OpOpen {
			c = opener
		}
		var f core.Frame
		if core.DecodeFrame(core.AppendFrame(nil, &core.Frame{Commands: []core.Command{c}}), &f) != nil {
			if int(op) != len(fullOps)+1 {
				t.Errorf("there are %d operations, and %d are known here", op-1, len(fullOps))
			}
			return
		}
		refused, known := fullOps[op]
		if code := fullNode(t)(core.SessionID{1}, c); !known || (code == core.CodeFull) != refused {
			t.Errorf("operation %d on a full disk: code %d", op, code)
		}
	}
}

// What only reads or frees is taken on a full disk, and the same operation refused if it makes something.
func TestFullTakesWhatFrees(t *testing.T) {
	rate := limit.Rate{Count: 1, Per: 1e9}
	submit := fullNode(t)
	for i, c := range []struct {
		refused bool
		core.Command
	}{
		{false, load}, {true, core.Command{Op: core.OpCount, Count: core.CountAdd}},
		{false, core.Command{Op: core.OpCountDown}}, {true, core.Command{Op: core.OpCountDown, Limit: 1}},
		{false, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyGet}, {Kind: core.KeyDelete}}}},
		{true, core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut}}}},
		{true, core.Command{Op: core.OpTxn, Else: []core.KeyOp{{Kind: core.KeyPut}}}},
		{false, core.Command{Op: core.OpLimit, Ask: &core.LimitAsk{Op: core.LimitPeek, Rate: rate}}},
		{false, core.Command{Op: core.OpLimit, Ask: &core.LimitAsk{Op: core.LimitReset}}},
		{true, core.Command{Op: core.OpLimit, Ask: &core.LimitAsk{Op: core.LimitReset, Rate: rate}}},
		{true, core.Command{Op: core.OpLimit, Ask: &core.LimitAsk{Op: core.LimitTake, Rate: rate}}},
	} {
		if c.Name, c.Seq = "n", uint64(i)+1; (submit(core.SessionID{1}, c.Command) == core.CodeFull) != c.refused {
			t.Errorf("%+v: refused is to be %v", c.Command, c.refused)
		}
	}
}

// On a full disk a session is opened for something that reads or frees alone, in a namespace that is there; one that is
// there is refreshed.
func TestFullOpensNoSession(t *testing.T) {
	elsewhere := opener
	elsewhere.Namespace = "new"
	for name, c := range map[string]struct {
		id       core.SessionID
		commands []core.Command
		refused  bool
	}{
		"an Open":                       {core.SessionID{2}, []core.Command{opener}, true},
		"two Opens":                     {core.SessionID{2}, []core.Command{opener, opener}, true},
		"an Open and a count":           {core.SessionID{2}, []core.Command{opener, {Op: core.OpCount, Seq: 1, Name: "n", Count: core.CountAdd, A: 1}}, true},
		"an Open and a read":            {core.SessionID{2}, []core.Command{opener, load}, false},
		"an Open and its End":           {core.SessionID{2}, []core.Command{opener, {Op: core.OpEnd}}, false},
		"a read in a new namespace":     {core.SessionID{2}, []core.Command{elsewhere, load}, true},
		"an End in a new namespace":     {core.SessionID{2}, []core.Command{{Op: core.OpEnd, Namespace: "new"}}, true},
		"the Open of one that is there": {core.SessionID{1}, []core.Command{opener}, false},
	} {
		if code := fullNode(t)(c.id, c.commands...); (code == core.CodeFull) != c.refused {
			t.Errorf("%s: code %d", name, code)
		}
	}
}

// Sessions that are opened to read are few on a full disk, and when one ends another may come.
func TestFullOpensFewSessions(t *testing.T) {
	submit, id := fullNode(t), func(i int) (id core.SessionID) {
		binary.BigEndian.PutUint32(id[8:], uint32(i)+1)
		return id
	}
	taken := 0
	for taken < 5000 && submit(id(taken), opener, load) == core.CodeOK {
		taken++
	}
	if taken != 1000 {
		t.Errorf("%d sessions were opened", taken)
	}
	for i, step := range []struct {
		id       core.SessionID
		commands []core.Command
		want     core.Code
	}{
		{id(0), []core.Command{opener, {Op: core.OpCount, Seq: 2, Name: "n"}}, core.CodeOK},
		{id(0), []core.Command{{Op: core.OpEnd}}, core.CodeOK},
		{id(9000), []core.Command{opener, load}, core.CodeOK},
		{id(9001), []core.Command{opener, load}, core.CodeFull},
	} {
		if code := submit(step.id, step.commands...); code != step.want {
			t.Errorf("%s: code %d, want %d", fmt.Sprint("step ", i), code, step.want)
		}
	}
}

// A burst of them that comes before the first is there passes the bound neither while they wait nor while they fly.
func TestFullOpensFewSessions_Burst(t *testing.T) {
	n, err := replica.New(replica.Config{ID: 1}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	settle(n)
	n.Submit(0, 1, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{1}, Attempt: 1, Mark: 1, Commands: []core.Command{opener}}))
	settle(n)
	n.SetFull(true)
	for i := range 3000 {
		var id core.SessionID
		binary.BigEndian.PutUint32(id[8:], uint32(i)+1)
		n.Submit(0, replica.Caller(i+1), core.AppendFrame(nil, &core.Frame{Session: id, Attempt: 1, Mark: 1, Commands: []core.Command{opener, load}}))
	}
	codes := map[core.Code]int{}
	for _, a := range settle(n) {
		codes[a.Code]++
	}
	if codes[core.CodeOK] != 1000 || codes[core.CodeFull] != 2000 {
		t.Errorf("of 3000 sessions became: %v", codes)
	}
}

// One that comes over a stream is told so there.
func TestFullOpensFewSessions_Stream(t *testing.T) {
	x, n := busy(t, replica.Config{})
	n.SetFull(true)
	for i := range 1000 {
		var id core.SessionID
		binary.BigEndian.PutUint32(id[8:], uint32(i)+1)
		n.Submit(x.now, replica.Caller(i+9), core.AppendFrame(nil, &core.Frame{Session: id, Attempt: 1, Mark: 1, Commands: []core.Command{opener, load}}))
	}
	if out := n.Output(); len(out.Answers) != 0 {
		t.Fatalf("%d are answered: %+v", len(out.Answers), out.Answers[0])
	}
	x.send(n, frame(core.SessionID{3}, 1, opener, load))
	if said := x.answers(n); len(said) != 1 || said[0].Refusal != session.RefusedDenied || said[0].Code != core.CodeFull || said[0].Session != (core.SessionID{3}) {
		t.Errorf("it is told %+v", said)
	}
}

// The namespace that clients use if they are not told of another can be read although nothing was ever put into it.
func TestFullReadsDefault(t *testing.T) {
	n, err := replica.New(replica.Config{ID: 1}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	settle(n)
	n.SetFull(true)
	for i, ns := range []string{"default", "", "new"} {
		first := opener
		first.Namespace = ns
		n.Submit(0, 1, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{byte(i) + 1}, Attempt: 1, Mark: 1, Commands: []core.Command{first, load}}))
		if a := settle(n); len(a) != 1 || (a[0].Code == core.CodeFull) != (ns == "new") {
			t.Errorf("a read in %q: %+v", ns, a)
		}
	}
}
