package driver_test

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

func newSession() *driver.Session {
	return driver.NewSession(driver.SessionID{1}, driver.Spec{TTL: 10 * time.Second})
}

func wantLost(t *testing.T, l *driver.Session) {
	t.Helper()
	if err := l.Err(); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Err is %v, want lost", err)
	}
}

func TestSession_WithoutDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSession()
		time.Sleep(1000 * time.Hour)
		if _, ok := l.Deadline(); ok || l.Err() != nil {
			t.Errorf("Err is %v", l.Err())
		}
	})
}

// The formula of the deadline, applied to the time of the send.
func TestSession_Extend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSession()
		sent := driver.Now()
		time.Sleep(3 * time.Second)
		l.Extend(sent, 101*time.Second)
		d, ok := l.Deadline()
		if want := 99*time.Second - 1010*time.Millisecond; !ok || d.Sub(sent) != want {
			t.Errorf("deadline %s after the send, want %s", d.Sub(sent), want)
		}
	})
}

func TestSession_OnlyForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSession()
		far := driver.Now().Add(time.Minute)
		l.MoveTo(far)
		l.MoveTo(driver.Now().Add(time.Second))
		l.Extend(driver.Now(), time.Second)
		if d, _ := l.Deadline(); !d.Equal(far) {
			t.Errorf("deadline moved back by %s", far.Sub(d))
		}
		time.Sleep(30 * time.Second)
		if l.Err() != nil {
			t.Error(l.Err())
		}
	})
}

func TestSession_EndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSession()
		var tie driver.Tie
		ended := make(chan error, 1)
		tie.To(l, func(err error) { ended <- err })
		l.MoveTo(driver.Now().Add(time.Second))
		time.Sleep(time.Second / 2)
		l.MoveTo(driver.Now().Add(time.Second))
		time.Sleep(time.Second - 1)
		synctest.Wait()
		if l.Err() != nil || len(ended) != 0 {
			t.Fatalf("a nanosecond before: %v", l.Err())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		<-l.Done()
		wantLost(t, l)
		if err := <-ended; !errors.Is(err, driver.ErrLost) {
			t.Errorf("the hold was told %v", err)
		}
		if got, want := l.Err().Error(), "holdfast: keep session: lost: not renewed in time"; got != want {
			t.Errorf("error is %q, want %q", got, want)
		}
	})
}

// Promise: "When the deadline passes the session is over for ever, whatever the
// engine answers later". Here the answer and the timer come at the same instant,
// and whichever runs first, it is over.
func TestSession_NeverRevives(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			l := newSession()
			d := driver.Now().Add(time.Second)
			l.MoveTo(d)
			time.Sleep(time.Second)
			l.MoveTo(d.Add(time.Hour))
			wantLost(t, l)
			l.Extend(driver.Now(), time.Hour)
			time.Sleep(time.Minute)
			wantLost(t, l)
			if now, _ := l.Deadline(); !now.Equal(d) {
				t.Errorf("the deadline of a dead session moved by %s", now.Sub(d))
			}
		})
	}
}

// A late timer lets nobody act: every look compares the clock.
func TestSession_ClockFirst(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			l := newSession()
			l.MoveTo(driver.Now().Add(time.Second))
			time.Sleep(time.Second)
			told := false
			var tie driver.Tie
			tie.To(l, func(error) { told = true })
			if !told {
				t.Error("a hold was tied to a session after its deadline")
			}
			wantLost(t, l)
		})
	}
}

func TestSession_End(t *testing.T) {
	l := newSession()
	first := errors.New("first")
	l.End(first)
	l.End(errors.New("second"))
	<-l.Done()
	if l.Err() != first {
		t.Errorf("Err is %v", l.Err())
	}
	l.MoveTo(driver.Now().Add(time.Hour))
	if l.Err() != first {
		t.Errorf("revived: %v", l.Err())
	}
	none := newSession()
	none.End(nil)
	wantLost(t, none)
}

func TestTie(t *testing.T) {
	l := newSession()
	cause := errors.New("cause")
	var told []int
	ties := make([]driver.Tie, 4)
	for i := range ties {
		ties[i].To(l, func(err error) {
			told = append(told, i)
			if err != cause {
				t.Errorf("told %v", err)
			}
		})
	}
	ties[1].Untie()
	ties[1].Untie()
	var free driver.Tie
	free.Untie()
	l.End(cause)
	l.End(cause)
	if len(told) != 3 || told[0] != 0 || told[1] != 2 || told[2] != 3 {
		t.Errorf("told %v, want 0, 2 and 3 once each", told)
	}
	late := 0
	var tie driver.Tie
	tie.To(l, func(error) { late++ })
	if late != 1 {
		t.Error("a tie to a session that has ended was not told")
	}
}

// Ties come and go while the session is renewed, looked at and ended; each one
// that stays is told exactly once.
func TestSession_Concurrent(t *testing.T) {
	for range 20 {
		l := newSession()
		l.MoveTo(driver.Now().Add(time.Hour))
		const n = 50
		var told [n]atomic.Int32
		ties := make([]driver.Tie, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				ties[i].To(l, func(error) { told[i].Add(1) })
				if i%2 == 0 {
					ties[i].Untie()
				}
				l.Extend(driver.Now(), time.Hour)
				_ = l.Err()
			})
		}
		wg.Go(func() { l.End(driver.ErrLost) })
		wg.Wait()
		for i := range n {
			if c := told[i].Load(); c > 1 || i%2 == 1 && c != 1 {
				t.Fatalf("tie %d was told %d times", i, c)
			}
		}
	}
}

// A caller that finds a session ended finds all its holds told: the one that ended it, and one that
// comes while that goes on.
func TestSession_EndedMeansTold(t *testing.T) {
	look := map[string]func(l *driver.Session){
		"Err":    func(l *driver.Session) { wantLost(t, l) },
		"End":    func(l *driver.Session) { l.End(driver.ErrClosed) },
		"MoveTo": func(l *driver.Session) { l.MoveTo(driver.Now().Add(time.Hour)) },
		"Done":   func(l *driver.Session) { <-l.Done() },
		"Untie":  nil,
	}
	for name, look := range look {
		t.Run(name, func(t *testing.T) {
			const holds = 100
			l := newSession()
			var told atomic.Int32
			begun := make(chan struct{})
			for i := range holds {
				new(driver.Tie).To(l, func(error) {
					if i == 0 {
						close(begun)
					}
					runtime.Gosched() // the other has every chance
					told.Add(1)
				})
			}
			var last driver.Tie
			last.To(l, func(error) { told.Add(1) })
			if look == nil {
				look = func(*driver.Session) { last.Untie() }
			}
			go l.End(driver.ErrLost)
			<-begun
			if look(l); told.Load() != holds+1 {
				t.Errorf("%d of %d holds were told", told.Load(), holds+1)
			}
		})
	}
}
