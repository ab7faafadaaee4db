package driver

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// kernel is a machine whose sleep a test decides.
type kernel struct {
	slept time.Duration
	asked int
}

func (k *kernel) read() time.Duration { k.asked++; return k.slept }

func TestSleeper(t *testing.T) {
	k := &kernel{slept: time.Hour}
	s := newSleeper(k.read)
	now := time.Now()
	if got := s.slept(now); got != 0 {
		t.Errorf("slept %s before the program started", got)
	}
	asked := k.asked
	for range 1000 {
		s.slept(now)
	}
	if k.asked != asked {
		t.Errorf("the kernel was asked %d times for nothing", k.asked-asked)
	}
	// The lid is closed for a minute: wall clock on, elapsed time not.
	k.slept += time.Minute
	awake := time.Unix(0, now.Add(time.Minute).UnixNano()) // the wall clock alone
	s.base = awake.Add(-now.Sub(s.base))                   // as elapsed time stands
	if got := s.slept(awake); got != time.Minute {
		t.Errorf("slept %s, want 1m", got)
	}
	// The clock is set back; that is no sleep, and nothing shrinks.
	asked = k.asked
	s.base = s.base.Add(-time.Hour)
	if got := s.slept(awake.Add(-time.Hour)); got != time.Minute || k.asked != asked+1 {
		t.Errorf("after the clock was set: %s, asked %d times", got, k.asked-asked)
	}
	k.slept += nap / 2
	s.ask()
	if got := time.Duration(s.total.Load()); got != time.Minute {
		t.Errorf("the time between two readings counts as sleep: %s", got)
	}
	k.slept -= time.Hour
	s.ask()
	if got := time.Duration(s.total.Load()); got != time.Minute {
		t.Errorf("sleep shrank to %s", got)
	}
}

// Promise: "Under the fake time of testing/synctest it is time.Now".
func TestNow_FakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 1000 {
			if off := time.Until(Now()); off != 0 {
				t.Fatalf("Now is off by %s", off)
			}
			time.Sleep(time.Hour)
		}
	})
}

func TestNow_Concurrent(t *testing.T) {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := Now()
			for range 1000 {
				now := Now()
				if now.Before(last) {
					t.Errorf("Now went back by %s", last.Sub(now))
				}
				last = now
			}
		})
	}
	wg.Wait()
	if left := Until(Now().Add(time.Hour)); left > time.Hour || left < time.Hour-time.Minute {
		t.Errorf("Until an hour from now is %s", left)
	}
}

func BenchmarkNow(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Now()
	}
}
