package memhold_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/bridge"
)

// A caller that releases while another does so waits for the same answer, also after one
// of them has given up.
func TestReleasesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		g, err := bridge.Driver(s).Acquire(t.Context(), &driver.Request{
			Wants: []driver.Want{{Name: "m", Kind: driver.Mutex}}, Spec: driver.Spec{TTL: time.Minute}, Lost: func(error) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		resume := stall(s)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		long, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		answers := make(chan error, 3)
		for range cap(answers) {
			go func() { answers <- g.Handle.Release(long) }()
		}
		if err := g.Handle.Release(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a stalled client was answered: %v", err)
		}
		synctest.Wait()
		resume()
		for range cap(answers) {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
	})
}
