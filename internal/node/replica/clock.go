package replica

// clock is the leader's cluster time. It begins at the machine's when the first
// entry of the leader's own term is applied, and adds elapsed time, sampled
// at every input, so at every tick. A gap between two samples counts for at most limit: a process that
// was stopped, or a machine that slept, expires nothing on waking. Slower is
// always safe; faster never.
type clock struct {
	now   int64 // cluster time at the last sample
	last  int64 // elapsed time of the last sample
	limit int64
}

// begin starts at cluster time now, at elapsed time at.
func (c *clock) begin(now, at int64) { c.now, c.last = now, at }

// sample moves the clock to elapsed time at and returns cluster time.
func (c *clock) sample(at int64) int64 {
	c.now += max(0, min(at-c.last, c.limit))
	c.last = max(c.last, at)
	return c.now
}
