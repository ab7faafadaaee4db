package holdfast

import "time"

// SequenceBlocks is how many blocks of sequences a Space keeps.
func SequenceBlocks(s *Space) (n int) {
	s.r.sequences.Range(func(any, any) bool { n++; return true })
	return n
}

// LeftAtClose is how many of n refunds of a key their worker looks at when their Space is closed.
func LeftAtClose(n int) (looks int) {
	var q refunds
	for range n {
		q.add("k", refund{})
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
