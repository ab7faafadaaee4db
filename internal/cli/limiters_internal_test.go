package cli

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/limit"
)

// endedHold is a hold that is lost.
type endedHold struct{ done chan struct{} }

func (h endedHold) Done() <-chan struct{} { return h.done }
func (h endedHold) Err() error {
	select {
	case <-h.done:
		return holdfast.ErrLost
	default:
		return nil
	}
}
func (h endedHold) Deadline() (time.Time, bool) { return time.Time{}, false }

// A hold that is lost while its command waits for a limiter ends the wait.
func TestLimiters_HoldIsLost(t *testing.T) {
	s, err := holdfast.Open(t.Context(), "mem:")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rate := limit.Rate{Count: 1, Per: time.Hour}
	if d, err := s.Limiter("x", rate).Allow(t.Context(), ""); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	h, lost := &holding{wait: -1, limiters: limiters{{name: "x", rate: rate, cost: 1}}}, make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- h.limit(t.Context(), s, turn{Hold: endedHold{lost}}) }()
	close(lost)
	select {
	case err := <-ended:
		if f, ok := errors.AsType[*failure](err); !ok || f.code != exitLost || !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the wait ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the wait goes on")
	}
}

// A cost that the rate beside it never allows is a mistake of the command line: no limiter is
// made of it.
func TestParseAsk_Never(t *testing.T) {
	for text, fits := range map[string]bool{"x=1/1h:2": false, "x=2/1h:2": true, "x=1/1h": true, "x=:2": true, "x": true} {
		if a, err := parseAsk(text); (err == nil) != fits {
			t.Errorf("%s: %+v, %v", text, a, err)
		}
	}
}
