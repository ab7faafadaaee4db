package edge

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

// noFirst is a keeper that refuses the first part of each kind.
type noFirst struct{ *keeper }

func (k noFirst) Keep(p Place, life time.Duration, m []byte) error {
	if p.Part == 0 {
		return errors.New("refused")
	}
	return k.keeper.Keep(p, life, m)
}

// TestPartsBesideARefusedOne: of a state of which a part was refused the others are kept, and replaced when there are
// fewer.
func TestPartsBesideARefusedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(edgetest.Faults{}, 0)
		n := open(t, Config{Actor: "a", Link: noFirst{s.link("a")}, State: time.Second, MaxMessage: 100})
		l := limiter(t, n, LimiterConfig{Rate: limit.Rate{Count: 10, Per: time.Minute, Algorithm: limit.FixedWindow}})
		for i := range 50 {
			take(t, l, fmt.Sprint("key ", i), 1)
		}
		pass(10 * time.Second)
		if told := s.windows(t); told < 10 {
			t.Fatalf("%d windows are kept", told)
		}
		pass(10 * time.Minute)
		if told := s.windows(t); told > 0 {
			t.Errorf("%d windows are kept that nobody counts", told)
		}
	})
}

// windows is how many windows are kept.
func (s *store) windows(t *testing.T) (kept int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, b := range s.kept {
		m, err := parse(b)
		if err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		kept += len(m.windows)
	}
	return kept
}
