package sim

import "testing"

func TestClockRoundTrip(t *testing.T) {
	for _, ppm := range []int64{-10_000, -1, 0, 1, 9_999, 10_000} {
		c := clock{ppm}
		for _, local := range []int64{0, 1, 99, 1_000_000, 1_000_001, 123_456_789, 7_200_000_000_000} {
			at := c.toTrueTime(local)
			if c.local(at) < local || at > 0 && c.local(max(0, at-25_000)) >= local && local > 25_000 {
				t.Errorf("at %+d ppm local %d is reached at %d, where the clock shows %d", ppm, local, at, c.local(at))
			}
		}
	}
}
