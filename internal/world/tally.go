package world

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// tally has counters of which each Add takes a digit of its own, to the base four:
// the value tells of every Add how often it took effect.
type tally struct {
	w *World

	mu   sync.Mutex
	all  map[string][]*sum
	next map[string]int // for each kind of counter, the number of the current one
}

// digits is how many Adds one counter takes.
const digits = 30

// sum is one Add.
type sum struct {
	counter string
	digit   int
	sign    int64
	call    *call

	answer answer // "": none yet
	value  int64  // told, if told
	told   bool
	ended  time.Time
	err    error // the last one
}

func newTally(w *World) *tally {
	return &tally{w: w, all: map[string][]*sum{}, next: map[string]int{}}
}

// reserve is a digit for an Add on a counter of a kind, which all clients share.
func (t *tally) reserve(kind string, sign int64) *sum {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := fmt.Sprintf("count/%s-%d", kind, t.next[kind])
	s := &sum{counter: name, digit: len(t.all[name]), sign: sign}
	t.all[name] = append(t.all[name], s)
	if s.digit == digits-1 {
		t.next[kind]++
	}
	return s
}

// amount is what is to be added.
func (s *sum) amount() int64 { return s.sign << (2 * s.digit) }

// settle notes the answer of an Add, and the value that it told.
func (t *tally) settle(s *sum, a answer, value int64, told bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.answer, s.value, s.told, s.ended = a, value*s.sign, told && a == done, time.Now()
	s.err = err
}

// times is how often an Add is in a value.
func (s *sum) times(value int64) int64 { return value >> (2 * s.digit) & 3 }

// judge looks at every Add of every counter; read is the counter's value.
func (t *tally) judge(read func(name string) int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, all := range t.all {
		value := read(name) * all[0].sign
		for _, s := range all {
			t.took(s, s.times(value))
		}
		t.ordered(name, all)
	}
}

// took compares how often an Add took effect with its answer.
func (t *tally) took(s *sum, n int64) {
	bad := n > 1
	switch s.answer {
	case done:
		bad = n != 1
	case notDone:
		bad = n != 0
	}
	if bad {
		t.w.violate("%s %s %s, digit %d, was answered as %s (%v) and took effect %d times", s.call.protocol, s.call.command, s.counter, s.digit, cmp.Or(s.answer, "nothing"), s.err, n)
	}
}

// ordered: the values that were told are those of one history, which agrees with
// the clock.
func (t *tally) ordered(name string, all []*sum) {
	told := slices.DeleteFunc(slices.Clone(all), func(s *sum) bool { return !s.told })
	for _, s := range told {
		if s.times(s.value) != 1 {
			t.w.violate("%s: an Add tells a value which it is in %d times", name, s.times(s.value))
		}
		for _, o := range all {
			switch n := o.times(s.value); {
			case n == 0 && o.answer == done && o.ended.Before(s.call.began):
				t.w.violate("%s: the Add of digit %d was done before that of %d was asked for, which does not know it", name, o.digit, s.digit)
			case n > 0 && (o.call == nil || o.call.began.After(s.ended)):
				t.w.violate("%s: the Add of digit %d knows that of %d, which came later", name, s.digit, o.digit)
			}
		}
	}
	slices.SortFunc(told, func(a, b *sum) int { return cmp.Compare(a.value, b.value) })
	for i := 1; i < len(told); i++ {
		for _, o := range all {
			if o.times(told[i-1].value) > o.times(told[i].value) {
				t.w.violate("%s: of two values that were told none is the earlier", name)
				return
			}
		}
	}
}
