package core

// A Go map keeps the room that it once needed. These bounds say when one that has lost
// most of what it had is made anew, which must not take long: most of what a machine
// keeps of a name or key is not in the map.
const (
	leastPeak = 1 << 15 // smaller ones are left alone
	mostMoved = 1 << 13 // entries that are moved at once
)

// without takes k out of a map that had at most peak items, and returns the map or
// a smaller one with the same entries.
func without[K comparable, V any](m map[K]V, k K, peak *int) map[K]V {
	*peak = max(*peak, len(m))
	delete(m, k)
	if *peak < leastPeak || len(m) > mostMoved || len(m) > *peak/4 {
		return m
	}
	small := make(map[K]V, len(m))
	for k, v := range m {
		small[k] = v
	}
	*peak = len(m)
	return small
}
