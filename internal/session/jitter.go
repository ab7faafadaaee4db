package session

// jitter is a small deterministic source of spread: a session must not beat in
// step with a thousand others that were opened in the same instant. It needs no
// quality beyond that, and its seed comes from outside.
type jitter uint64

func (j *jitter) next() uint64 {
	*j += 0x9e3779b97f4a7c15
	z := uint64(*j)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number from 0 to n-1, and 0 for n ≤ 0.
func (j *jitter) below(n int64) int64 {
	if n <= 0 {
		return 0
	}
	return int64(j.next() % uint64(n))
}

// backoff is the pause before try number n (from 1 on) of something that did
// not work: up to base·2ⁿ, never more than most, and spread over the upper half
// so that pauses do grow.
func (j *jitter) backoff(n int, base, most int64) int64 {
	top := most
	if n < 16 {
		top = min(base<<n, most)
	}
	return top/2 + j.below(top/2+1)
}
