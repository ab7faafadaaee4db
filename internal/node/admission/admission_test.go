package admission_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/admission"
)

var classes = []admission.Class{admission.Keep, admission.Grant, admission.Create, admission.List}

func TestTakes(t *testing.T) {
	for _, c := range []struct {
		used, limit int
		taken       int // of the classes, from the most important on
	}{
		{0, 8, 4}, {3, 8, 4}, {4, 8, 3}, {5, 8, 2}, {6, 8, 1}, {7, 8, 1}, {8, 8, 0}, {9, 8, 0},
		{0, 1, 1}, {1, 1, 0}, {0, 0, 0},
		{499, 1000, 4}, {500, 1000, 3}, {624, 1000, 3}, {625, 1000, 2}, {749, 1000, 2}, {750, 1000, 1}, {999, 1000, 1}, {1000, 1000, 0},
		{math.MaxInt - 1, math.MaxInt, 1}, {math.MaxInt / 2, math.MaxInt, 3},
	} {
		for i, class := range classes {
			wait, ok := admission.Room{Used: c.used, Limit: c.limit}.Takes(class)
			if ok != (i < c.taken) || ok != (wait == 0) {
				t.Errorf("%d of %d used: %s is taken: %t, after %s", c.used, c.limit, class, ok, wait)
			}
		}
	}
}

// The least limit takes something of every class, and a smaller one does not.
func TestLeast(t *testing.T) {
	for _, class := range classes {
		if _, ok := (admission.Room{Limit: admission.Least}).Takes(class); !ok {
			t.Errorf("a queue of %d never takes %s", admission.Least, class)
		}
	}
	if _, ok := (admission.Room{Limit: admission.Least - 1}).Takes(admission.List); ok {
		t.Errorf("a queue of %d takes all classes", admission.Least-1)
	}
}

// Whatever the queue, nobody is refused before those who are less important are,
// nobody gets in beyond the limit, and what is less important comes back later.
func TestOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		room := admission.Room{Used: r.IntN(1 << r.IntN(30)), Limit: r.IntN(1 << r.IntN(30))}
		for i := range classes[1:] {
			above, takesAbove := room.Takes(classes[i])
			below, takesBelow := room.Takes(classes[i+1])
			if takesBelow && !takesAbove || !takesAbove && below < above {
				t.Fatalf("%+v: %s %t %s, %s %t %s", room, classes[i], takesAbove, above, classes[i+1], takesBelow, below)
			}
			if takesAbove && room.Used >= room.Limit {
				t.Fatalf("%+v takes %s", room, classes[i])
			}
		}
	}
}

func TestOfFrame(t *testing.T) {
	known := core.SessionID{1}
	is := func(id core.SessionID) bool { return id == known }
	for _, c := range []struct {
		id   core.SessionID
		ops  []core.Op
		want admission.Class
	}{
		{known, nil, admission.List},
		{known, []core.Op{core.OpAcquire}, admission.Grant},
		{known, []core.Op{core.OpAcquire, core.OpRelease}, admission.Keep},
		{known, []core.Op{core.OpOpen}, admission.Keep},
		{known, []core.Op{core.OpOpen, core.OpTxn}, admission.Grant},
		{known, []core.Op{core.OpOpen, core.OpRelease}, admission.Keep},
		{known, []core.Op{core.OpOpen, core.OpEnd}, admission.Keep},
		{core.SessionID{2}, []core.Op{core.OpOpen}, admission.Create},
		{core.SessionID{2}, []core.Op{core.OpOpen, core.OpRelease}, admission.Create},
		{core.SessionID{2}, []core.Op{core.OpEnd}, admission.Keep},
		{core.SessionID{2}, []core.Op{core.OpCancel}, admission.Keep},
	} {
		f := core.Frame{Session: c.id}
		for _, op := range c.ops {
			f.Commands = append(f.Commands, core.Command{Op: op})
		}
		if got := admission.OfFrame(&f, is); got != c.want {
			t.Errorf("session %d, %v: %s, want %s", c.id[0], c.ops, got, c.want)
		}
	}
}

func ExampleRoom_Takes() {
	room := admission.Room{Used: 800, Limit: 1000}
	for _, c := range []admission.Class{admission.Keep, admission.Grant, admission.List} {
		wait, ok := room.Takes(c)
		fmt.Println(c, ok, wait)
	}
	// Output:
	// keep true 0s
	// grant false 200ms
	// list false 1s
}
