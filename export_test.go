package holdfast

import (
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// SequenceBlocks is how many blocks of sequences a Space keeps.
func SequenceBlocks(s *Space) (n int) {
	s.r.sequences.Range(func(any, any) bool { n++; return true })
	return n
}

// LeftAtClose is how many of n refunds of a key their worker looks at when their Space is closed.
func LeftAtClose(n int) (looks int) {
	var q refunds
	for range n {
		q.add("k", refund{at: driver.Now()})
	}
	for _, more := q.next("k", true); more; _, more = q.next("k", true) {
		looks++
	}
	return looks
}

// TurnsLookAgain reports that of n callers, of which all have their turn, one that leaves the queue looks at another.
func TurnsLookAgain(n int) (again bool) {
	var t turns
	places := make([]*place, n)
	for i := range places {
		places[i] = t.join("k", 1, time.Time{})
	}
	places[0].left = int64(n)
	places[0].leave()
	for _, p := range places[1:] {
		<-p.turn
		p.own.Value = nil // a look at it panics
	}
	defer func() { again = recover() != nil }()
	for _, p := range places[1:] {
		p.left = int64(n)
		p.leave()
	}
	return false
}

// TurnsTellAgain reports that of n callers that have their turn together, with as many behind them, and are refused
// alike, another than the first looks at those that wait.
func TurnsTellAgain(n int) (again bool) {
	var t turns
	places := make([]*place, 2*n)
	for i := range places {
		places[i] = t.join("k", 1, time.Now().Add(time.Hour))
	}
	places[0].left = int64(n)
	places[0].leave()
	refused := limit.Decision{RetryAfter: time.Minute}
	places[1].answered(refused, nil)
	for _, p := range places[n+2 : 2*n-1] { // between the first and the last of those that wait
		p.own.Value = nil // a look at it panics
	}
	defer func() { again = recover() != nil }()
	for _, p := range places[2 : n+1] {
		p.answered(refused, nil)
	}
	return false
}

// TurnsTellLate reports that a caller that comes between two refusals of callers that had their turn together is told
// of it with the second.
func TurnsTellLate() bool {
	var t turns
	places := make([]*place, 4)
	for i := range places {
		places[i] = t.join("k", 1, time.Now().Add(time.Hour))
	}
	places[0].left = 2
	places[0].leave()
	refused := limit.Decision{RetryAfter: time.Minute}
	places[1].answered(refused, nil)
	late := t.join("k", 1, time.Now().Add(time.Second))
	places[2].answered(refused, nil)
	return late.open && late.tooLong == time.Minute && !places[3].open
}

// TurnsRooms is how many answers are kept of n callers that asked together, each of which left more than those before, and
// what the last is told to be left.
func TurnsRooms(n int) (kept int, left int64) {
	var t turns
	for range n {
		t.join("k", 1, time.Time{})
	}
	q := t.queues["k"]
	for e := q.Front(); e != nil; e = e.Next() {
		p := e.Value.(*place)
		p.left = int64(p.nth)
		left = q.room(p)
	}
	return len(q.rooms), left
}
