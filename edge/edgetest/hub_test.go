package edgetest

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// arrivals are the numbers that b gets of 1000 messages from a.
func arrivals(f Faults) (got []int) {
	hub := NewHub(f)
	stop, _ := hub.Link("b").Listen(func(m []byte) { got = append(got, int(m[0])<<8|int(m[1])) })
	defer stop()
	a := hub.Link("a")
	for i := range 1000 {
		a.Send([]byte{byte(i >> 8), byte(i)})
	}
	time.Sleep(f.MaxDelay + time.Second)
	synctest.Wait()
	return got
}

// TestFaults: each fault happens about as often as it was asked for, and the same
// way in every run.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got := arrivals(Faults{Loss: 30, Seed: 1}); len(got) < 650 || len(got) > 750 {
			t.Errorf("with a loss of 30 %%, %d came", len(got))
		}
		if got := arrivals(Faults{Repeat: 30, Seed: 1}); len(got) < 1250 || len(got) > 1350 {
			t.Errorf("with a repetition of 30 %%, %d came", len(got))
		}
		f := Faults{Loss: 10, Repeat: 10, MaxDelay: time.Minute, Seed: 5}
		first := arrivals(f)
		if slices.IsSorted(first) {
			t.Error("nothing was reordered")
		}
		if !slices.Equal(first, arrivals(f)) {
			t.Error("the same seed did something else")
		}
		f.Seed = 6
		if slices.Equal(first, arrivals(f)) {
			t.Error("another seed did the same")
		}
	})
}

// TestPartition: a cut loses what is on its way too, and parts go on by themselves.
func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := NewHub(Faults{MaxDelay: time.Second})
		got := map[string]int{}
		for _, name := range []string{"b", "c"} {
			stop, _ := hub.Link(name).Listen(func([]byte) { got[name]++ })
			defer stop()
		}
		a := hub.Link("a")
		send := func(want error) {
			if err := a.Send([]byte("m")); !errors.Is(err, want) {
				t.Error(err)
			}
		}
		send(nil)
		hub.Partition("a", "b")
		time.Sleep(time.Minute)
		hub.Split("a", "b")
		send(nil)
		time.Sleep(time.Minute)
		hub.Heal()
		hub.Down("a", true)
		send(ErrDown)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got["b"] != 1 || got["c"] != 0 {
			t.Errorf("%v", got)
		}
	})
}
