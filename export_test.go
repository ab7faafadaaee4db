package holdfast

// SequenceBlocks is how many blocks of sequences a Space keeps.
func SequenceBlocks(s *Space) (n int) {
	s.r.sequences.Range(func(any, any) bool { n++; return true })
	return n
}
