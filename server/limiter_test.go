package server_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/limit"
)

// The first request to a node that has just begun may be one that needs the newest
// version: it waits for that, and is not refused.
func TestLimiterOfANewNode(t *testing.T) {
	for range 10 {
		s, err := holdfast.Open(t.Context(), "embed://"+t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		d, err := s.Limiter("l", limit.Rate{Count: 1, Per: time.Hour}).Allow(t.Context(), "k")
		if err != nil || !d.Allowed {
			t.Errorf("the first request: %+v, %v", d, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
