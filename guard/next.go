package guard

import "time"

// NextChange is the next instant at which a time window of the condition begins or ends;
// zero: it has no windows, or they never change.
func (c *Condition) NextChange(now time.Time) (next time.Time) {
	if c.Kind == KindTimeWindow {
		return c.Window.next(now)
	}
	for i := range c.Of {
		if t := c.Of[i].NextChange(now); !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

// next looks at the edges of the days around now: a window is the same every week.
func (w *Window) next(now time.Time) time.Time {
	local := now.UTC().Add(w.Offset)
	midnight := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, time.UTC).Add(-w.Offset)
	was := w.has(now.UnixNano())
	var next time.Time
	for day := range 8 {
		for _, at := range []time.Duration{0, w.From, w.To} {
			edge := midnight.Add(time.Duration(day)*24*time.Hour + at)
			if edge.After(now) && w.has(edge.UnixNano()) != was && (next.IsZero() || edge.Before(next)) {
				next = edge
			}
		}
	}
	return next
}
