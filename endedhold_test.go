package holdfast_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
)

// TestHold_EndedIsNotDone: a call that alters a hold which is over has certainly changed nothing, and is told under its
// own name; NotDone says so, however the hold ended.
func TestHold_EndedIsNotDone(t *testing.T) {
	for how, end := range map[string]func(h *holdfast.Hold){
		"released": func(h *holdfast.Hold) { _ = h.Release() },
		"lost":     func(h *holdfast.Hold) { <-h.Done() },
	} {
		for op, call := range callsOnHolds {
			t.Run(how+" "+op, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, _ := open(t, holdfast.TTL(10*time.Second))
					h, alter := call(t, s.With(holdfast.MaxHold(time.Minute)))
					end(h)
					kind := holdfast.ErrLost
					if how == "released" {
						kind = holdfast.ErrReleased
					}
					err := alter()
					wantErr(t, err, kind)
					if e, ok := err.(*holdfast.Error); !ok || e.Op != op || e.Name != h.Name() || !holdfast.NotDone(err) {
						t.Errorf("%#v; want the operation %s, the name, and NotDone", err, op)
					}
				})
			})
		}
	}
}

// callsOnHolds make a hold, and a call that alters it; by operation.
var callsOnHolds = map[string]func(t *testing.T, s *holdfast.Space) (*holdfast.Hold, func() error){
	"extend": func(t *testing.T, s *holdfast.Space) (*holdfast.Hold, func() error) {
		h := acquire(t, s.Mutex("a"))
		return h, func() error { return h.Extend(t.Context(), time.Minute) }
	},
	"renew": func(t *testing.T, s *holdfast.Space) (*holdfast.Hold, func() error) {
		h := acquire(t, s.Mutex("a", holdfast.ManualRenew()))
		return h, func() error { return h.Renew(t.Context(), 0) }
	},
	"upgrade": func(t *testing.T, s *holdfast.Space) (*holdfast.Hold, func() error) {
		h := acquire(t, s.RWMutex("a").Reader())
		return h, func() error { _, err := s.RWMutex("a").Upgrade(t.Context(), h); return err }
	},
	"downgrade": func(t *testing.T, s *holdfast.Space) (*holdfast.Hold, func() error) {
		h := acquire(t, s.RWMutex("a").Writer())
		return h, func() error { _, err := s.RWMutex("a").Downgrade(t.Context(), h); return err }
	},
	"proclaim": func(t *testing.T, s *holdfast.Space) (*holdfast.Hold, func() error) {
		l := lead(t, s)
		return l.Hold, func() error { return l.Proclaim(t.Context(), nil) }
	},
	"hand over": func(t *testing.T, s *holdfast.Space) (*holdfast.Hold, func() error) {
		l := lead(t, s)
		return l.Hold, func() error { return l.HandOver(t.Context(), "another") }
	},
}

func lead(t *testing.T, s *holdfast.Space) *holdfast.Leadership {
	t.Helper()
	l, err := s.Election("a").Campaign(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
