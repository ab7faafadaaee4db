package edge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/edge/edgetest"
)

func setOf(t testing.TB, n *Node) *Set {
	t.Helper()
	s, err := n.Set("s")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func registerOf(t testing.TB, n *Node) *Register {
	t.Helper()
	r, err := n.Register("r")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestValues: sets and registers agree after loss, repetition, delay and partition;
// of what nodes do one after the other the last stands.
func TestValues(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			hub := edgetest.NewHub(edgetest.Faults{Seed: seed, Loss: 30, Repeat: 20, MaxDelay: time.Second})
			var nodes []*Node
			for i := range 4 {
				nodes = append(nodes, open(t, Config{Actor: fmt.Sprint(i), Link: hub.Link(fmt.Sprint(i))}))
			}
			for i := range 60 {
				n := nodes[rng.IntN(4)]
				switch e := fmt.Sprint(rng.IntN(8)); rng.IntN(4) {
				case 0:
					setOf(t, n).Remove(e)
				case 1, 2:
					if err := setOf(t, n).Add(e); err != nil {
						t.Fatal(err)
					}
				default:
					if err := registerOf(t, n).Store([]byte(fmt.Sprint(i))); err != nil {
						t.Fatal(err)
					}
				}
				if i == 20 {
					hub.Split("0", "1")
				}
				if i == 40 {
					hub.Heal()
				}
				pass(time.Duration(rng.IntN(300)) * time.Millisecond)
			}
			pass(2 * time.Minute)
			setOf(t, nodes[0]).Remove("0")
			if err := setOf(t, nodes[1]).Add("last"); err != nil {
				t.Fatal(err)
			}
			if err := registerOf(t, nodes[2]).Store([]byte("last")); err != nil {
				t.Fatal(err)
			}
			pass(2 * time.Minute)
			want := setOf(t, nodes[0]).Elements()
			for _, n := range nodes {
				s := setOf(t, n)
				if !slices.Equal(s.Elements(), want) || s.Has("0") || !s.Has("last") || string(registerOf(t, n).Load()) != "last" {
					t.Fatalf("seed %d: %s has %v and %q, not %v", seed, n.Actor(), s.Elements(), registerOf(t, n).Load(), want)
				}
			}
		})
	}
}

// TestValuesAreTold: a change elsewhere is told, and what a link refused is sent again.
func TestValuesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		a := open(t, Config{Actor: "a", Link: hub.Link("a"), State: time.Hour})
		b := open(t, Config{Actor: "b", Link: hub.Link("b"), State: time.Hour})
		pass(time.Second)
		changes, stop := setOf(t, b).Watch()
		defer stop()
		writes, end := registerOf(t, b).Watch()
		defer end()
		hub.Down("a", true)
		for _, e := range []string{"x", "y"} {
			if err := setOf(t, a).Add(e); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
		}
		if err := registerOf(t, a).Store([]byte("v")); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		hub.Down("a", false)
		back := time.Now()
		<-changes
		<-writes
		if took := time.Since(back); took > time.Second {
			t.Errorf("it came after %s, with a state", took)
		}
		if got := setOf(t, b).Elements(); len(got) != 2 || string(registerOf(t, b).Load()) != "v" {
			t.Errorf("%v, %q", got, registerOf(t, b).Load())
		}
	})
}

// TestCausalReads: a caller that has seen a count or a write on one node sees it on
// another after Await, and not before it is there.
func TestCausalReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{MaxDelay: 5 * time.Second})
		a, b := open(t, Config{Actor: "a", Link: hub.Link("a")}), open(t, Config{Actor: "b", Link: hub.Link("b")})
		add(t, a, "x", 3)
		add(t, b, "x", 100)
		if err := registerOf(t, a).Store([]byte("v")); err != nil {
			t.Fatal(err)
		}
		x, err := a.Counter("x")
		if err != nil {
			t.Fatal(err)
		}
		there, _ := b.Counter("x")
		version, write := x.Version(), registerOf(t, a).Version()
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := there.Await(short, version); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before it can be there: %v", err)
		}
		if err := there.Await(t.Context(), version); err != nil || there.Value() != 103 {
			t.Errorf("%d, %v", there.Value(), err)
		}
		if err := registerOf(t, b).Await(t.Context(), write); err != nil || string(registerOf(t, b).Load()) != "v" {
			t.Errorf("%q, %v", registerOf(t, b).Load(), err)
		}
		for _, bad := range []string{"", "!", "AAAA", version[:len(version)-2], write} {
			if err := there.Await(t.Context(), bad); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("the version %q: %v", bad, err)
			}
			if err := registerOf(t, b).Await(t.Context(), strings.Replace(bad, write, version, 1)); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("the version %q: %v", bad, err)
			}
		}
	})
}

// TestRegisterFrom2099: a write from a clock far ahead is ignored and counted.
func TestRegisterFrom2099(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		ahead := func() time.Time { return time.Now().AddDate(99, 0, 0) }
		a := open(t, Config{Actor: "a", Link: hub.Link("a"), Now: ahead, Incarnation: 1})
		b := open(t, Config{Actor: "b", Link: hub.Link("b")})
		for n, v := range map[*Node]string{a: "2099", b: "today"} {
			if err := registerOf(t, n).Store([]byte(v)); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		if got := registerOf(t, b).Load(); string(got) != "today" || b.Stats().Skewed == 0 {
			t.Errorf("%q, %+v", got, b.Stats())
		}
	})
}

// narrow is a link that takes no message above a size.
type narrow struct {
	*edgetest.Link
	most int
}

func (l *narrow) Send(m []byte) error {
	if len(m) > l.most {
		return errors.New("the message is too large")
	}
	return l.Link.Send(m)
}

// TestLargeSet: a set is bounded as it is sent, with the names of nodes; and one that is
// too large for a link all the same keeps nothing else from being told.
func TestLargeSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		a := open(t, Config{Actor: strings.Repeat("a", 300), Flush: 5 * time.Second, Link: &narrow{hub.Link("a"), MaxSetBytes / 2}})
		b := open(t, Config{Actor: "b", Link: hub.Link("b")})
		var err error
		for i := 0; err == nil; i++ {
			err = setOf(t, a).Add(fmt.Sprint(i))
		}
		if got := len(setOf(t, a).state()); !errors.Is(err, ErrFull) || got > MaxSetBytes || got < MaxSetBytes*9/10 {
			t.Fatalf("%v: %d bytes", err, got)
		}
		if err := registerOf(t, a).Store([]byte("v")); err != nil {
			t.Fatal(err)
		}
		add(t, a, "x", 1)
		pass(time.Second)
		late := open(t, Config{Actor: "late", Link: hub.Link("late")})
		pass(time.Minute)
		for _, n := range []*Node{b, late} {
			if n.Count("x") != 1 || string(registerOf(t, n).Load()) != "v" {
				t.Errorf("%s: beside a set that is too large: %d, %q", n.Actor(), n.Count("x"), registerOf(t, n).Load())
			}
		}
		for _, e := range setOf(t, a).Elements()[10:] {
			setOf(t, a).Remove(e)
		}
		pass(time.Minute)
		if got := setOf(t, b).Elements(); len(got) != 10 {
			t.Errorf("once it is small: %d elements", len(got))
		}
	})
}

func TestValuesBadInput(t *testing.T) {
	n := open(t, Config{Actor: "a"})
	long := strings.Repeat("x", MaxName+1)
	s, r := setOf(t, n), registerOf(t, n)
	for what, err := range map[string]error{
		"a set without a name":  second(n.Set("")),
		"a long name":           second(n.Register(long)),
		"an element of nothing": s.Add(""),
		"a long element":        s.Add(long),
		"a value that is large": r.Store(make([]byte, MaxRegister+1)),
		"a register of no name": second(n.Register("")),
	} {
		if !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var full error
	for i := 0; full == nil && i < MaxSetBytes; i++ {
		full = s.Add(strings.Repeat(fmt.Sprintf("%06d", i), 80))
	}
	if !errors.Is(full, ErrFull) {
		t.Errorf("a full set: %v", full)
	}
	s.Remove(s.Elements()[0])
	if err := s.Add("room"); err != nil {
		t.Errorf("after a removal: %v", err)
	}
	for i := 0; i <= MaxValues; i++ {
		_, full = n.Set(fmt.Sprint(i))
	}
	if !errors.Is(full, ErrFull) {
		t.Errorf("too many sets: %v", full)
	}
	if _, err := n.Set("s"); err != nil {
		t.Errorf("one that is there: %v", err)
	}
}

// TestSetAfterClose: a set of a closed node grows by what is in it, not by what was done to
// it.
func TestSetAfterClose(t *testing.T) {
	n := open(t, Config{Actor: "a"})
	s := setOf(t, n)
	if err := s.Add("told"); err != nil {
		t.Fatal(err)
	}
	n.Close()
	for range 1000 {
		if err := s.Add("e"); err != nil {
			t.Fatal(err)
		}
		s.Remove("e")
	}
	if err := s.Add("e"); err != nil || !s.Has("e") {
		t.Fatal(err)
	}
	if size := len(s.news.Append(nil)); size > 100 {
		t.Errorf("%d bytes wait to be sent by nobody", size)
	}
}

// TestCausalReadsOfASet: a caller that has seen an addition or a removal on one node sees it on
// another after Await, and not before it is there.
func TestCausalReadsOfASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{MaxDelay: 5 * time.Second})
		a, b := open(t, Config{Actor: "a", Link: hub.Link("a")}), open(t, Config{Actor: "b", Link: hub.Link("b")})
		here, there := setOf(t, a), setOf(t, b)
		for _, present := range []bool{true, false, true} {
			if present {
				if err := here.Add("e"); err != nil {
					t.Fatal(err)
				}
			} else {
				here.Remove("e")
			}
			version := here.Version()
			short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if err := there.Await(short, version); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("before it can be there: %v", err)
			}
			cancel()
			if err := there.Await(t.Context(), version); err != nil || there.Has("e") != present {
				t.Errorf("%v, %v", there.Elements(), err)
			}
		}
		for _, bad := range []string{"", "!", "AAAA", here.Version()[1:], registerOf(t, a).Version()} {
			if err := there.Await(t.Context(), bad); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("the version %q: %v", bad, err)
			}
		}
	})
}
