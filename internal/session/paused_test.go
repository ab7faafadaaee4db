package session_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/fence"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

const outside = "Outside the promise is a machine that is paused while none of its clocks counts the time: " +
	"a virtual machine that its host stops, saves or migrates, and on other systems than Linux any machine that sleeps. " +
	"Its programs go on believing in their holds, until they hear from the server or their own clock has counted the rest of the TTL. " +
	"Only the token protects there: check it where the work takes effect."

// The README: "Outside the promise is a machine that is paused while none of its
// clocks counts the time" and so on. The holder's clock stands still for ten TTLs: the
// next is granted, and the holder goes on believing; its token is refused.
func TestPausedMachine(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(strings.Fields(string(readme)), " "); !strings.Contains(text, outside) {
		t.Errorf("the README does not say: %s", outside)
	}
	const ttl = int64(10 * time.Second)
	m := core.New(core.Config{})
	var out core.Output
	apply := func(now int64, frames ...[]byte) {
		out.Reset()
		if err := m.Apply(core.AppendEntry(nil, &core.Entry{Now: now, Frames: frames}), &out); err != nil {
			t.Fatal(err)
		}
	}
	s := session.New(session.Config{ID: testID, TTL: time.Duration(ttl)})
	s.Connect(0)
	s.Submit(0, &session.Call{Command: core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "a", Kind: core.Mutex}}}})
	apply(0, append([]byte(nil), s.Flush(0)[1].Message.Body...), waiter(3*ttl))
	first := out.Replies[0].Results[1].Token
	s.Receive(0, &session.Message{Kind: session.KindTable, Session: testID, Stream: 1, Last: true})
	s.Receive(0, &session.Message{Kind: session.KindReply, Session: testID, Stream: 1, Body: core.AppendReply(nil, &out.Replies[0])})

	apply(10 * ttl) // and for the holder no time has passed
	if len(out.Pushes) != 1 || out.Pushes[0].State != core.ClaimGranted {
		t.Fatalf("the next is not granted: %+v", out.Pushes)
	}
	second := out.Pushes[0].Token
	if d, ok := s.Deadline(); !ok || d <= 0 || !s.Alive() {
		t.Fatalf("a holder that cannot know of its loss has a deadline of %d, %t", d, ok)
	}
	var gate fence.Gate
	if err := gate.Check("a", fence.Token(second), fence.Exclusive); err != nil {
		t.Fatal(err)
	}
	if err := gate.Check("a", fence.Token(first), fence.Exclusive); first == 0 || !errors.Is(err, driver.ErrStale) {
		t.Errorf("the token %d after %d: %v", first, second, err)
	}
}
