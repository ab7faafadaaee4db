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

// TurnsTake is how long n callers take to go through the queue of a key in which there is room for all.
func TurnsTake(n int) time.Duration {
	var t turns
	places := make([]*place, n)
	start := time.Now()
	for i := range places {
		places[i] = t.join("k", 1, time.Time{})
	}
	for i, p := range places {
		p.left = int64(n - i)
		p.leave()
	}
	return time.Since(start)
}
