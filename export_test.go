package holdfast

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
