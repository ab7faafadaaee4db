package replica_test

import (
	"fmt"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// A node alone: what it wants written is written at once, and the answer comes.
func Example() {
	node, err := replica.New(replica.Config{ID: 1, MinTTL: 1},
		replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		fmt.Println(err)
		return
	}
	settle(node)

	frame := core.AppendFrame(nil, &core.Frame{Session: core.SessionID{1}, Attempt: 1, Mark: 1, Commands: []core.Command{
		{Op: core.OpOpen, TTL: 30e9, Owner: "ann"},
		{Op: core.OpAcquire, Seq: 1, Wants: []core.Want{{Name: "jobs/nightly", Kind: core.Mutex}}},
	}})
	node.Submit(0, 7, frame)
	for _, a := range settle(node) {
		var reply core.Reply
		if err := core.DecodeReply(a.Data, &reply); err != nil {
			fmt.Println(err)
			return
		}
		granted := reply.Results[1]
		fmt.Println("caller", a.Caller, "is granted:", granted.Code == core.CodeOK, "with a token:", granted.Token > 0)
	}
	// Output: caller 7 is granted: true with a token: true
}

// settle plays a perfect disk until nothing is left to do.
func settle(n *replica.Node) (answers []replica.Answer) {
	for {
		out := n.Output()
		answers = append(answers, out.Answers...)
		if len(out.Writes) == 0 {
			return answers
		}
		n.Written(0, out.Writes[len(out.Writes)-1].ID)
	}
}
