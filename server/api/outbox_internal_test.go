package api

import (
	"testing"
	"testing/synctest"
)

// From a client that does not take its answers nothing more is read, until it
// does.
func TestUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{wake: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
		o.add(make([]byte, maxUnread))
		if err := o.room(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.take(nil) // an old word that somebody has taken must not let the next pass
		o.add(make([]byte, maxUnread+1))
		waits := true
		go func() {
			_ = o.room(t.Context())
			waits = false
		}()
		synctest.Wait()
		if !waits {
			t.Error("the client is read on")
		}
		o.take(nil)
		synctest.Wait()
		if waits {
			t.Error("who waited was not told")
		}
	})
}
