package guardfile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is what a field says; which part of it is meant, its format tells.
type value struct {
	text     string
	number   int64
	truth    bool
	duration time.Duration
	days     []time.Weekday
}

// format is how a value is written: what a node has to be, how it is read, and the same
// for the schema.
type format struct {
	is     shape
	read   func(*node) (value, error)
	schema map[string]any
	// sample stands for a value that is not known yet; nil: any text is one.
	sample *value
}

var (
	text    = &format{isText, readText, map[string]any{"type": "string", "minLength": 1}, nil}
	anyText = &format{isText, func(n *node) (value, error) { return value{text: n.text}, nil }, map[string]any{"type": "string"}, nil}
	integer = &format{isInteger, readInteger, map[string]any{"type": "integer"}, &value{number: 1}}
	boolean = &format{isBoolean, readBoolean, map[string]any{"type": "boolean"}, nil}

	positive = &format{isInteger, readPositive, map[string]any{"type": "integer", "minimum": 1}, &value{number: 1}}
	clock    = &format{isText, readClock, map[string]any{"type": "string", "pattern": clockForm.String()}, &value{}}
	offset   = &format{isText, readOffset, map[string]any{"type": "string", "pattern": offsetForm.String()}, &value{}}
	weekdays = &format{isList, readDays, map[string]any{"type": "array", "items": map[string]any{"enum": dayNames}, "minItems": 1, "uniqueItems": true}, nil}
)

var (
	clockForm  = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$`)
	offsetForm = regexp.MustCompile(`^[+-](0[0-9]|1[0-7]):[0-5][0-9]$`)
	dayNames   = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

func readText(n *node) (value, error) {
	if n.text == "" {
		return value{}, fmt.Errorf("the text is empty")
	}
	return value{text: n.text}, nil
}

// readInteger takes only the plain way to write a number: what 010, 0x10 or 1_000 mean
// differs from one reader of YAML to the next.
func readInteger(n *node) (value, error) {
	v, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil || strconv.FormatInt(v, 10) != n.text {
		return value{}, fmt.Errorf("%s is not a plain decimal number of 64 bits", clip(n.text))
	}
	return value{number: v}, nil
}

func readPositive(n *node) (value, error) {
	v, err := readInteger(n)
	if err == nil && v.number < 1 {
		err = fmt.Errorf("%d is below 1", v.number)
	}
	return v, err
}

func readBoolean(n *node) (value, error) {
	if n.text != "true" && n.text != "false" {
		return value{}, fmt.Errorf("%s is written true or false", clip(n.text))
	}
	return value{truth: n.text == "true"}, nil
}

func readClock(n *node) (value, error) {
	if !clockForm.MatchString(n.text) {
		return value{}, fmt.Errorf("%q is not a time of the day such as \"08:30\"", clip(n.text))
	}
	return value{duration: hoursMinutes(n.text)}, nil
}

func readOffset(n *node) (value, error) {
	if !offsetForm.MatchString(n.text) {
		return value{}, fmt.Errorf("%q is not an offset such as \"+02:00\", below 18 hours", clip(n.text))
	}
	d := hoursMinutes(n.text[1:])
	if n.text[0] == '-' {
		d = -d
	}
	return value{duration: d}, nil
}

// hoursMinutes reads hh:mm, which its form has promised.
func hoursMinutes(s string) time.Duration {
	h, m, _ := strings.Cut(s, ":")
	hours, _ := strconv.Atoi(h)
	minutes, _ := strconv.Atoi(m)
	return time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
}

func readDays(n *node) (v value, err error) {
	if len(n.of) == 0 {
		return v, fmt.Errorf("the list is empty: leave it out for every day")
	}
	seen := map[string]bool{}
	for _, d := range n.of {
		i := slices.Index(dayNames, d.text)
		if i < 0 || d.is != isText || seen[d.text] {
			return v, fmt.Errorf("%q is not one of %s, each once", clip(d.text), strings.Join(dayNames, ", "))
		}
		seen[d.text] = true
		v.days = append(v.days, time.Weekday(i))
	}
	return v, nil
}
