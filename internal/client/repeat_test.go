package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/limit"
)

// What a buffered counter was given is counted once, over outages that are shorter
// than the TTL of its session, however often its flushes are not answered.
func TestBufferedCountsOnce(t *testing.T) {
	unknown := 0
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { unknown += countOverOutages(t, seed) })
		})
	}
	if unknown < 100 {
		t.Errorf("only %d flushes had an unknown outcome: the test shows little", unknown)
	}
}

func countOverOutages(t *testing.T, seed uint64) (unknown int) {
	f := openFar(t, seed)
	f.mend()
	names := []string{"a", "b"}
	var counters []*holdfast.BufferedCounter[int64]
	for i := range 6 {
		counters = append(counters, f.s.Counter(names[i%2]).Buffered(1<<40, 20*time.Hour))
	}
	var total [2]int64
	for range 200 {
		switch i := f.rnd.IntN(len(counters)); f.rnd.IntN(8) {
		case 0:
			f.cut()
		case 1, 2:
			f.mend()
		case 3, 4:
			n := f.rnd.Int64N(1000)
			total[i%2] += n
			if err := counters[i].Add(n); err != nil {
				t.Fatal(err)
			}
		default:
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(f.rnd.IntN(12))*time.Millisecond)
			if _, err := counters[i].Flush(ctx); err != nil && !holdfast.NotDone(err) {
				unknown++
			}
			cancel()
		}
		time.Sleep(time.Duration(f.rnd.IntN(5)) * time.Millisecond)
		if f.rnd.IntN(20) == 0 { // an outage, but never one of a TTL
			f.cut()
			time.Sleep(time.Duration(f.rnd.IntN(15)) * time.Second) // and a renewal may have been due for a third
			f.mend()
			time.Sleep(time.Second)
		}
	}
	f.mend()
	for i, c := range counters {
		if err := c.Close(); err != nil {
			t.Fatalf("counter %d: %v", i, err)
		}
	}
	for i, name := range names {
		if n, err := f.s.Counter(name).Load(t.Context()); err != nil || n != total[i] {
			t.Errorf("%s: %d were added, %d counted (%v)", name, total[i], n, err)
		}
	}
	return unknown
}

// A call that was never sent is not done, and one whose answer comes while nobody
// waits for it is not sent again.
func TestRepeatIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFar(t, 1)
		b := f.s.Counter("c").Buffered(1<<40, time.Hour)
		flush := func(d time.Duration) (int64, error) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			return b.Flush(ctx)
		}
		if err := b.Add(5); err != nil {
			t.Fatal(err)
		}
		if _, err := flush(time.Second); !holdfast.NotDone(err) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a link: %v", err)
		}
		f.mend()
		if _, err := f.s.Counter("c").Add(t.Context(), 1); err != nil { // the session is open
			t.Fatal(err)
		}
		if _, err := flush(time.Millisecond); holdfast.NotDone(err) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before the answer can be there: %v", err)
		}
		time.Sleep(time.Second) // it comes
		sent := f.sent
		if n, err := flush(time.Second); n != 6 || err != nil || f.sent != sent+1 {
			t.Errorf("after the answer: %d, %v, and %d messages more, want one that asks for the value", n, err, f.sent-sent)
		}
	})
}

// However many calls of limiters are given up after they were sent, those that come
// are answered, as are the flushes of buffered counters.
func TestManyLimiterCallsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFar(t, 1)
		f.mend()
		l := f.s.Limiter("l", limit.Rate{Count: 1_000_000, Per: time.Second})
		if _, err := l.Allow(t.Context(), "k"); err != nil { // the session is open
			t.Fatal(err)
		}
		unknown := 0
		for range 700 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			var all sync.WaitGroup
			errs := make([]error, 100)
			for i := range errs {
				all.Go(func() { _, errs[i] = l.Allow(ctx, "k") })
			}
			all.Wait()
			cancel()
			for _, err := range errs {
				if errors.Is(err, context.DeadlineExceeded) && !holdfast.NotDone(err) {
					unknown++
				}
			}
			time.Sleep(time.Second) // the answers come
		}
		if unknown < 66_000 {
			t.Errorf("only %d calls were sent and given up: the test shows little", unknown)
		}
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			t.Errorf("a call after those: %v", err)
		}
		b := f.s.Counter("c").Buffered(1<<40, time.Hour)
		if err := b.Add(1); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Flush(t.Context()); err != nil {
			t.Errorf("a flush after those: %v", err)
		}
	})
}
