package natshold_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestAmongImpatientWaiters: callers that wait for a moment only and come again do not keep the name from one that
// waits for long, in their program or in another.
func TestAmongImpatientWaiters(t *testing.T) {
	url := services.NATS(t).URL() + "/impatient"
	a, b := open(t, url), open(t, url)
	for i, patient := range []*holdfast.Space{a, b} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			name := fmt.Sprint("m", i)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			defer all.Wait()
			defer cancel()
			for range 20 {
				all.Go(func() { impatient(ctx, a, name) })
			}
			for range 5 {
				began := time.Now()
				h := must(patient.Mutex(name).Acquire(t.Context()))(t)
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("one that waits for long was granted after %s", took)
				}
				if err := h.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// impatient takes a name for a moment, or waits for a moment, again and again.
func impatient(ctx context.Context, s *holdfast.Space, name string) {
	for ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		if h, err := s.Mutex(name).Acquire(short); err == nil {
			time.Sleep(10 * time.Millisecond)
			_ = h.Release()
		}
		cancel()
	}
}
