package server

import (
	"testing"
	"testing/synctest"
)

// A sender of more than the loop takes waits for it, and goes on when it has.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(nil, 1, 0)
		st := &Stream{l: l, id: 1}
		if err := st.Send(make([]byte, maxInbox)); err != nil || st.Room(t.Context()) != nil {
			t.Fatal("there is no room in an inbox that is just full")
		}
		if err := st.Send([]byte("x")); err != nil {
			t.Fatal(err)
		}
		waits := true
		go func() {
			_ = st.Room(t.Context())
			waits = false
		}()
		synctest.Wait()
		if !waits {
			t.Error("nobody waits for room")
		}
		if in, _ := l.take(); len(in.frames) != 2 {
			t.Errorf("%d frames were taken", len(in.frames))
		}
		synctest.Wait()
		if waits {
			t.Error("who waited for room was not told")
		}
	})
}
