package holdfast_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/limit"
)

// monthly is a long window.
var monthly = limit.Rate{Count: 1600, Every: limit.Month, Algorithm: limit.CalendarWindow}

// rush has blocks allow n at one moment, and tells how much they have left.
func rush(t *testing.T, l *holdfast.Limiter, blocks *holdfast.LeasedLimiter, n int64) (left int64) {
	for range n {
		if d, err := blocks.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		synctest.Wait()
	}
	there, err := l.Available(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return monthly.Count - n - there
}

// "Of a window of a minute or more a block is at most a sixteenth of Count": what is lost with a program that is killed.
func TestLeased_BlocksOfLongWindowsAreSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := limiting(t)
		l := s.Limiter("l", monthly)
		if left := rush(t, l, l.Leased(), 1000); left == 0 || left > 2*monthly.Count/16 {
			t.Errorf("in its midst a program has %d of %d", left, monthly.Count)
		}
		time.Sleep(5 * time.Second) // what nobody asks for is given back
	})
}

// "After SetRate, Reset or Delete programs use what they have left of their blocks beside what is new, until their next block comes".
func TestLeased_BeginsAnew(t *testing.T) {
	for what, anew := range map[string]func(*holdfast.Limiter) error{
		"SetRate": func(l *holdfast.Limiter) error { return l.SetRate(t.Context(), monthly) },
		"Reset":   func(l *holdfast.Limiter) error { return l.Reset(t.Context(), "k") },
	} {
		t.Run(what, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { leasedAnew(t, anew) }) })
	}
}

func leasedAnew(t *testing.T, anew func(*holdfast.Limiter) error) {
	s, _ := limiting(t)
	l := s.Limiter("l", monthly)
	blocks := l.Leased()
	defer blocks.Close()
	left := rush(t, l, blocks, 1010)
	if err := anew(l); err != nil {
		t.Fatal(err)
	}
	allowed := int64(0)
	for d, err := blocks.Allow(t.Context(), "k"); d.Allowed; d, err = blocks.Allow(t.Context(), "k") {
		if allowed++; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	}
	if excess := allowed - monthly.Count; excess <= 0 || excess >= left {
		t.Errorf("beside a block of %d, %d more than the rate are allowed", left, excess)
	}
	t.Logf("beside a block of %d, %d more than the rate are allowed", left, allowed-monthly.Count)
}
