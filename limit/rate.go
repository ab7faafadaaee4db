package limit

import (
	"fmt"
	"io/fs"
	"math/bits"
	"time"
)

// Algorithm is how a [Rate] is counted; the package comment compares them.
type Algorithm uint8

// The algorithms.
const (
	GCRA Algorithm = iota
	TokenBucket
	FixedWindow
	CalendarWindow
	SlidingWindow
	SlidingLog
)

var algorithmNames = [...]string{"gcra", "token-bucket", "fixed-window", "calendar-window", "sliding-window", "sliding-log"}

// String is the name of the algorithm in settings and messages.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return "unknown"
}

// ParseAlgorithm is the reverse of [Algorithm.String].
func ParseAlgorithm(name string) (Algorithm, error) {
	for i, n := range algorithmNames {
		if n == name {
			return Algorithm(i), nil
		}
	}
	return 0, fmt.Errorf("limit: the algorithm %q is unknown; there are %q: %w", name, algorithmNames, fs.ErrInvalid)
}

// Period is the length of a [CalendarWindow].
type Period uint8

// The periods; days, months and years begin at midnight of [Rate.Offset].
const (
	Hour Period = 1 + iota
	Day
	Month
	Year
)

// The bounds of a [Rate].
const (
	// MaxCount bounds Count and Burst.
	MaxCount = 1 << 40
	// MaxLog bounds Count of a [SlidingLog], which remembers so many admissions.
	MaxLog = 10_000
	// MinPer and MaxPer bound Per.
	MinPer = time.Microsecond
	MaxPer = 10 * 366 * 24 * time.Hour
	// maxOffset is the greatest distance of a time zone from UTC.
	maxOffset = 18 * time.Hour
)

// Rate is how much is allowed.
type Rate struct {
	// Count is what is allowed in each Per; at least 1.
	Count int64
	// Per is the time that Count is for; a [CalendarWindow] has Every instead.
	Per time.Duration
	// Burst is what may happen at once after a pause; 0: Count. Only of [GCRA] and
	// [TokenBucket].
	Burst int64
	// Initial is what a key that was never used may do at once; 0: Burst. Only of
	// [GCRA] and [TokenBucket]. A key with less than Burst is remembered for good,
	// since one that was forgotten would begin with Initial again. It fills from the first time that it
	// is asked for a cost from 1 to Burst, also if that is refused: one that was only looked at has Initial for ever.
	Initial int64
	// Algorithm is how it is counted; the zero value is [GCRA].
	Algorithm Algorithm
	// Every is the period of a [CalendarWindow].
	Every Period
	// Offset is how far the calendar's midnight is east of UTC.
	Offset time.Duration
	// Name tells several rates apart in headers and messages; it decides nothing.
	Name string
}

// Check says what is wrong with the rate; every other function of the package
// needs one that is right.
func (r Rate) Check() error {
	switch {
	case r.Algorithm > SlidingLog:
		return invalid("the algorithm %d is unknown", r.Algorithm)
	case r.Count < 1 || r.Count > MaxCount:
		return invalid("the count %d is out of range: 1 to %d", r.Count, int64(MaxCount))
	case r.Algorithm == CalendarWindow:
		return r.checkCalendar()
	case r.Every != 0 || r.Offset != 0:
		return invalid("Every and Offset are of calendar windows")
	case r.Per < MinPer || r.Per > MaxPer:
		return invalid("the time %s is out of range: %s to %s", r.Per, MinPer, MaxPer)
	case r.Algorithm == SlidingLog && r.Count > MaxLog:
		return invalid("a sliding log of %d is out of range: 1 to %d; a sliding window takes more", r.Count, MaxLog)
	}
	return r.checkBurst()
}

func (r *Rate) checkCalendar() error {
	switch {
	case r.Every < Hour || r.Every > Year:
		return invalid("the period %d is unknown", r.Every)
	case r.Per != 0:
		return invalid("a calendar window has Every, not Per")
	case r.Offset < -maxOffset || r.Offset > maxOffset || r.Offset%time.Minute != 0:
		return invalid("the offset %s is out of range: whole minutes, at most %s", r.Offset, maxOffset)
	}
	return r.checkBurst()
}

func (r *Rate) checkBurst() error {
	if !r.bucket() {
		if r.Burst != 0 || r.Initial != 0 {
			return invalid("Burst and Initial are of GCRA and token bucket; a %s has Count only", r.Algorithm)
		}
		return nil
	}
	switch {
	case r.Burst < 0 || r.Burst > MaxCount:
		return invalid("the burst %d is out of range: 1 to %d, or 0 for the count", r.Burst, int64(MaxCount))
	case r.Initial < 0 || r.Initial > r.burst():
		return invalid("the initial amount %d is out of range: 1 to %d, or 0 for all of it", r.Initial, r.burst())
	case !r.fits(r.burst()):
		return invalid("a burst of %d needs more than %s to fill at %d in %s", r.burst(), maxFill, r.Count, r.Per)
	}
	return nil
}

// maxFill is the longest time in which a bucket may fill: sums with any time of
// the clock stay far from overflow.
const maxFill = 100 * 366 * 24 * time.Hour

// fits reports that a bucket of n fills within maxFill.
func (r *Rate) fits(n int64) bool {
	high, low := bits.Mul64(uint64(n), uint64(r.Per))
	if high >= uint64(r.Count) {
		return false
	}
	fill, _ := bits.Div64(high, low, uint64(r.Count))
	return fill <= uint64(maxFill)
}

// bucket reports that the algorithm has a burst.
func (r *Rate) bucket() bool { return r.Algorithm == GCRA || r.Algorithm == TokenBucket }

func (r *Rate) burst() int64 {
	if r.Burst > 0 {
		return r.Burst
	}
	return r.Count
}

func (r *Rate) initial() int64 {
	if r.Initial > 0 {
		return r.Initial
	}
	return r.burst()
}

// Fill is the time that n units of a bucket take to refill: whole nanoseconds, and
// part/Count of one; for engines that decide by adding and comparing times.
func (r Rate) Fill(n int64) (ns, part int64) {
	m := r.fill(n)
	return m.ns, m.part
}

// Limit is the most that a key can be allowed at once: Burst of a bucket, else
// Count. A greater cost can never be taken.
func (r Rate) Limit() int64 { return r.limit() }

func (r *Rate) limit() int64 {
	if r.bucket() {
		return r.burst()
	}
	return r.Count
}

// Equal reports that two rates decide alike: their names and the spelling of
// defaults do not count.
func (r Rate) Equal(o Rate) bool { return r.plain() == o.plain() }

// plain is the rate without a name and with its defaults spelled out.
func (r Rate) plain() Rate {
	r.Name = ""
	if r.bucket() {
		r.Burst, r.Initial = r.burst(), r.initial()
	}
	return r
}

// String is the rate for people: "100 per 1m0s, burst 20". It has everything but the name and what is so by
// default: two rates with one text are [Rate.Equal].
func (r Rate) String() string {
	switch {
	case r.Algorithm == CalendarWindow:
		return r.calendarText()
	case !r.bucket():
		return fmt.Sprintf("%d per %s, %s", r.Count, r.Per, r.Algorithm)
	}
	s := fmt.Sprintf("%d per %s", r.Count, r.Per)
	if r.burst() != r.Count {
		s += fmt.Sprintf(", burst %d", r.burst())
	}
	if r.initial() != r.burst() {
		s += fmt.Sprintf(", initial %d", r.initial())
	}
	if r.Algorithm != GCRA {
		s += ", " + r.Algorithm.String()
	}
	return s
}

// calendarText is String of a calendar window.
func (r *Rate) calendarText() string {
	s := fmt.Sprintf("%d a %s", r.Count, [...]string{"", "hour", "day", "month", "year"}[min(r.Every, Year)])
	if r.Offset != 0 {
		s += fmt.Sprintf(", offset %s", r.Offset)
	}
	return s
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("limit: %s: %w", fmt.Sprintf(format, args...), fs.ErrInvalid)
}
