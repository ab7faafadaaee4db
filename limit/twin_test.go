package limit_test

import (
	"math/big"
	"time"
)

// twin keeps every admission and asks the definition of the bound each time. It
// knows nothing of package limit but the words of a rate.
type twin struct {
	count, per, burst, initial int64
	kind                       string
	zone                       time.Duration
	layout                     string // of a calendar: what two times of one window have in common
	all                        []admission
	first                      *int64 // when the key was first asked for
}

type admission struct{ at, cost int64 }

// allows reports that cost at t keeps the bound, by definition.
func (w *twin) allows(t, cost int64) bool {
	switch w.kind {
	case "bucket":
		return w.bucketAllows(t, cost)
	case "fixed":
		return w.sum(func(a admission) bool { return floor(a.at, w.per) == floor(t, w.per) })+cost <= w.count
	case "calendar":
		return w.sum(func(a admission) bool { return w.day(a.at) == w.day(t) })+cost <= w.count
	case "log":
		return w.sum(func(a admission) bool { return a.at > t-w.per && a.at <= t })+cost <= w.count
	}
	return w.slidingAllows(t, cost)
}

// seen notes when the key was first asked for.
func (w *twin) seen(t, cost int64) {
	if w.first == nil && cost > 0 && cost <= w.burst {
		w.first = &t
	}
}

// bucketAllows: in every span that ends at t, at most burst plus what refills in
// it; and since the first use at most what a new key begins with, likewise.
func (w *twin) bucketAllows(t, cost int64) bool {
	sum := cost
	if sum > w.burst {
		return false
	}
	for i := len(w.all) - 1; i >= 0; i-- {
		sum += w.all[i].cost
		if !w.within(sum, w.burst, t-w.all[i].at) {
			return false
		}
	}
	return w.first == nil || w.within(sum, w.initial, t-*w.first)
}

// within: sum <= base + span·count/per, exactly.
func (w *twin) within(sum, base, span int64) bool {
	left := new(big.Int).Mul(big.NewInt(sum-base), big.NewInt(w.per))
	return left.Cmp(new(big.Int).Mul(big.NewInt(span), big.NewInt(w.count))) <= 0
}

// slidingAllows: what the window before had, in the share of it that still lies
// within Per of t, rounded up, and what this window has.
func (w *twin) slidingAllows(t, cost int64) bool {
	now := floor(t, w.per)
	before := w.sum(func(a admission) bool { return floor(a.at, w.per) == now-1 })
	used := w.sum(func(a admission) bool { return floor(a.at, w.per) == now })
	left := w.per - (t - now*w.per)
	share := new(big.Int).Mul(big.NewInt(before), big.NewInt(left))
	share.Add(share, big.NewInt(w.per-1)).Div(share, big.NewInt(w.per))
	return share.Int64()+used+cost <= w.count
}

func (w *twin) sum(in func(admission) bool) (n int64) {
	for _, a := range w.all {
		if in(a) {
			n += a.cost
		}
	}
	return n
}

func (w *twin) day(t int64) string {
	return time.Unix(0, t).UTC().Add(w.zone).Format(w.layout)
}

// astray reports that a key of a calendar was used in a window after the one that
// follows now's.
func (w *twin) astray(now, used int64) bool {
	if w.kind != "calendar" {
		return false
	}
	begin, _ := time.Parse(w.layout, w.day(now))
	switch w.layout {
	case "2006":
		begin = begin.AddDate(2, 0, 0)
	case "2006-01":
		begin = begin.AddDate(0, 2, 0)
	case "2006-01-02":
		begin = begin.AddDate(0, 0, 2)
	default:
		begin = begin.Add(2 * time.Hour)
	}
	return used >= begin.Add(-w.zone).UnixNano()
}

func floor(t, per int64) int64 {
	n := t / per
	if n*per > t {
		n--
	}
	return n
}
