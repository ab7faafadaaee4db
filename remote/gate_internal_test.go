package remote

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const there = "there:1"

var errGone = errors.New("gone")

// Thousands that dial an address at once do so some at a time, and all have their
// turn.
func TestGate_SomeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x gates
		var now, most atomic.Int32
		var all sync.WaitGroup
		for range 5000 {
			all.Go(func() {
				if err := x.enter(t.Context(), there, false); err != nil {
					t.Error(err)
				}
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Millisecond)
				now.Add(-1)
				x.leave(there, nil)
			})
		}
		all.Wait()
		if m := most.Load(); m != dialsAtOnce {
			t.Errorf("%d dialled at once, want %d", m, dialsAtOnce)
		}
	})
}

// A handshake that begins when its dial was given up, and its address is that of no gate any more,
// ends nobody's program.
func TestGate_ReachedTooLate(t *testing.T) {
	var x gates
	for _, address := range []string{there, "elsewhere:1"} {
		if err := x.enter(t.Context(), address, false); err != nil {
			t.Fatal(err)
		}
		x.leave(address, nil)
	}
	if x.all[there] != nil {
		t.Fatal("the gate is kept: the test shows nothing")
	}
	x.reached(there)
}

// herdOf has n dial an address that cannot be reached for an outage, as searches do:
// each is patient once it has been told. It returns how often it was dialled, and
// how long after the outage the last got through.
func herdOf(t *testing.T, n int, outage time.Duration) (dialled int32, took time.Duration) {
	var x gates
	var tries atomic.Int32
	var all sync.WaitGroup
	began := time.Now()
	dial := func() bool {
		tries.Add(1)
		if time.Since(began) < outage {
			x.leave(there, errGone)
			return false
		}
		x.reached(there)
		time.Sleep(time.Millisecond)
		x.leave(there, nil)
		return true
	}
	for range n {
		all.Go(func() {
			for told, done := false, false; !done; {
				err := x.enter(t.Context(), there, told)
				if told && err != nil {
					t.Error("the patient are told:", err)
				}
				done = err == nil && dial()
				told = told || !done
			}
		})
	}
	all.Wait()
	return tries.Load(), time.Since(began) - outage
}

// An address that cannot be reached is dialled every 50 ms, however many want to;
// when it can, they all go there.
func TestGate_Outage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, outage = 5000, 5 * time.Second
		dialled, took := herdOf(t, n, outage)
		if most := int32(n + dialsAtOnce + outage/verdictHolds); dialled > most {
			t.Errorf("dialled %d times, want %d at most", dialled, most)
		}
		if most := verdictHolds + (n/dialsAtOnce+2)*time.Millisecond; took > most {
			t.Errorf("the last got through after %s, want %s", took, most)
		}
	})
}

// A caller that comes, or waits, when an address could not be reached is told at once, to try
// another one; a moment later it is tried again.
func TestGate_Verdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x gates
		enter := func() error { return x.enter(t.Context(), there, false) }
		if err := enter(); err != nil {
			t.Fatal(err)
		}
		x.leave(there, errGone)
		if err := enter(); err != errGone {
			t.Fatalf("told %v", err)
		}
		time.Sleep(verdictHolds)
		if err := enter(); err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		go func() { second <- enter() }()
		synctest.Wait()
		x.leave(there, errGone)
		if err := <-second; err != errGone {
			t.Errorf("who waited was told %v", err)
		}
	})
}

// A caller that goes away takes nobody's turn along, whether its own had come or not.
func TestGate_Abandon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x gates
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*time.Millisecond)
				defer cancel()
				if x.enter(ctx, there, i%2 == 0) == nil {
					time.Sleep(time.Duration(i%5) * time.Millisecond)
					x.leave(there, nil)
				}
			})
		}
		all.Wait()
		if !x.all[there].idle(time.Now()) {
			t.Errorf("%+v is left", x.all[there])
		}
	})
}

// What was known of addresses is forgotten when nobody dials them any more.
func TestGate_Forgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x gates
		for i := range 1000 {
			address := strconv.Itoa(i)
			if err := x.enter(t.Context(), address, false); err != nil {
				t.Fatal(err)
			}
			x.leave(address, errGone)
			time.Sleep(time.Millisecond)
		}
		if n := len(x.all); n > 2*int(verdictHolds/time.Millisecond) {
			t.Errorf("%d are known", n)
		}
	})
}

// A Space dials when it is its turn, and not before.
func TestGate_IsUsed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	address, dialled := ln.Addr().String(), make(chan struct{}, 1)
	for range dialsAtOnce {
		if err := dials.enter(t.Context(), address, false); err != nil {
			t.Fatal(err)
		}
		defer func() { dials.leave(address, nil) }()
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer ln.Close()
	all.Go(func() {
		if c, err := ln.Accept(); err == nil {
			dialled <- struct{}{}
			_ = c.Close()
		}
	})
	d, err := New(Config{Endpoints: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(t.Context())
	for waits := 0; waits == 0; time.Sleep(time.Millisecond) {
		select {
		case <-dialled:
			t.Fatal("it does not wait for its turn")
		default:
		}
		dials.mu.Lock()
		waits = len(dials.all[address].queue)
		dials.mu.Unlock()
	}
	dials.leave(address, nil)
	<-dialled
	if err := dials.enter(t.Context(), address, false); err != nil {
		t.Fatal(err)
	}
}

// An address to which a connection is being made is not dialled as well, however long
// it takes; one that is connected and silent is, after a while.
func TestSearch_WhileConnecting(t *testing.T) {
	s, x := &search{}, &scout{endpoint: there}
	s.scouts = []*scout{x}
	if s.mayAsk(3600*second, there) {
		t.Error("dialled beside one that is connecting")
	}
	x.asked.Store(3600 * second)
	if s.mayAsk(3600*second+int64(linger)-1, there) || !s.mayAsk(3600*second+int64(linger), there) {
		t.Error("a silent one is not asked again after a second")
	}
}
