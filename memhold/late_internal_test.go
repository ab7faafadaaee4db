package memhold

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
)

// A process that was stopped finds all its timers late. Whatever comes first
// then, no grant may come before the loss that makes room for it was told. Here
// only the store's clock has gone on, so that every timer is late.
func TestLossIsToldBeforeAnyTimer(t *testing.T) {
	for _, ends := range []holdfast.HoldOption{holdfast.TTL(time.Second), holdfast.MaxHold(time.Second)} {
		t.Run(fmt.Sprintf("%T", ends), func(t *testing.T) {
			st := newStore("")
			a, b := space(t, st), space(t, st)
			h, err := a.Mutex("m", ends).Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer h.Release()
			lost := h.Done() // later calls of Done would look at the clock
			st.g.Shift(2 * time.Second)
			if _, err := b.Mutex("m", holdfast.TTL(time.Hour)).Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			select {
			case <-lost:
			default:
				t.Fatal("granted before the loss was known")
			}
		})
	}
}

func space(t *testing.T, st *store) *holdfast.Space {
	t.Helper()
	s, err := holdfast.New(st.newClient())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
