package session_test

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// A shell tells the session what happens and does what it asks for. Here the
// shell is a few lines, the server is a machine, and the way between them is a
// function call.
func Example() {
	server := core.New(core.Config{})
	s := session.New(session.Config{ID: core.SessionID{7}, TTL: 10 * time.Second, Owner: "example"})

	now := int64(0) // of the client; the server's clock stands elsewhere
	s.Connect(now)
	lock := &session.Call{Command: core.Command{
		Op: core.OpAcquire, Wants: []core.Want{{Name: "jobs/nightly", Kind: core.Mutex}},
	}}
	s.Submit(now, lock)

	var frame []byte
	for _, a := range s.Flush(now) {
		fmt.Println("send", a.Message.Kind == session.KindAttach, len(a.Message.Body) > 0)
		frame = a.Message.Body
	}
	var out core.Output
	entry := core.AppendEntry(nil, &core.Entry{Now: int64(time.Hour), Frames: [][]byte{frame}})
	if err := server.Apply(entry, &out); err != nil {
		fmt.Println(err)
	}

	now += int64(20 * time.Millisecond)
	s.Receive(now, &session.Message{Kind: session.KindTable, Session: s.ID(), Stream: 1, Last: true})
	reply := session.Message{Kind: session.KindReply, Session: s.ID(), Stream: 1, Body: core.AppendReply(nil, &out.Replies[0])}
	for _, a := range s.Receive(now, &reply) {
		switch a.Kind {
		case session.Moved:
			fmt.Println("believe until", time.Duration(a.Deadline).Round(10*time.Millisecond))
		case session.Done:
			fmt.Println("granted:", a.Call == lock && a.Call.Result.Code == core.CodeOK)
		}
	}
	// Output:
	// send true false
	// send false true
	// believe until 9.7s
	// granted: true
}
