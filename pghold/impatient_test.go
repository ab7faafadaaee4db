package pghold_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// TestAmongImpatientWaiters: callers that wait for a moment only and come again do not keep the name from one that
// waits for long, in their program or in another: few of them are served before it.
func TestAmongImpatientWaiters(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	a, b := open(t, url), open(t, url)
	for i, patient := range []*holdfast.Space{a, b} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			name := fmt.Sprint("m", i)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			var served atomic.Int64
			defer all.Wait()
			defer cancel()
			for range 20 {
				all.Go(func() { impatient(ctx, a, name, &served) })
			}
			for range 5 {
				before := served.Load()
				h := must(patient.Mutex(name).Acquire(t.Context()))(t)
				if n := served.Load() - before; n > 200 {
					t.Errorf("one that waits for long was granted after %d others", n)
				}
				check(t, h.Release())
			}
		})
	}
}

// impatient takes a name for a moment, or waits for a moment, again and again.
func impatient(ctx context.Context, s *holdfast.Space, name string, served *atomic.Int64) {
	for ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		if h, err := s.Mutex(name).Acquire(short); err == nil {
			served.Add(1)
			time.Sleep(10 * time.Millisecond)
			_ = h.Release()
		}
		cancel()
	}
}
