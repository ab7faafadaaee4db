package limits

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

var periods = map[string]limit.Period{"hour": limit.Hour, "day": limit.Day, "month": limit.Month, "year": limit.Year}

// ParseRate reads a rate as people write it: a count and a time (100/1m), or a
// period of the calendar (100/day). The rate is not checked.
func ParseRate(text string) (r limit.Rate, err error) {
	count, per, _ := strings.Cut(text, "/")
	if r.Count, err = strconv.ParseInt(count, 10, 64); err != nil {
		return r, noRate(text)
	}
	if every, ok := periods[per]; ok {
		r.Algorithm, r.Every = limit.CalendarWindow, every
	} else if r.Per, err = time.ParseDuration(per); err != nil {
		return r, noRate(text)
	}
	return r, nil
}

func noRate(text string) error {
	return fmt.Errorf("%q is no rate, such as 100/1m or 100/day: %w", text, fs.ErrInvalid)
}
