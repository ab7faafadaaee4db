// Package holdtest lets you test what your program does with the things it
// holds, and without them: a Space of your own for each test, and losses when
// you ask for them.
//
//	func TestWorker(t *testing.T) {
//		s := holdtest.Space(t)
//		…
//	}
//
// Everything runs in memory and follows the fake time of testing/synctest, so
// that a session of an hour ends in no time.
package holdtest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/bridge"
	"github.com/holdfast-io/holdfast/memhold"
)

// Space returns a new, empty Space in memory that is closed with the test.
func Space(tb testing.TB, opts ...holdfast.Option) *holdfast.Space {
	tb.Helper()
	s := memhold.Open(opts...)
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("closing the test's Space: %v", err)
		}
	})
	return s
}

// Lose ends h as if the backend had reported its loss: h.Err is
// [holdfast.ErrLost] because of cause, and contexts bound to h end. The name is
// free for others once h is released.
func Lose(h *holdfast.Hold, cause error) {
	bridge.Lose(h, cause)
}

// Stall stops the renewals of s and all its other calls, as a program does that is
// stopped itself: what s holds is lost when its TTL has passed, and a call waits until
// its context ends, unless resume is called before. Others are asked by another Space.
// resume may be called more than once. The Space has to be in memory; Stall
// panics for a backend that it cannot stop.
func Stall(s *holdfast.Space) (resume func()) {
	st, ok := bridge.Driver(s).(bridge.Staller)
	if !ok {
		panic(fmt.Sprintf("holdtest: the %s backend cannot be stalled; use holdtest.Space", s.Info().Scheme))
	}
	return sync.OnceFunc(st.Stall())
}
