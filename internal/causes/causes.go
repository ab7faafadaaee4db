// Package causes lets what fails again and again be told once for each cause.
package causes

import "strings"

// Told are the causes that were told since all was well. The zero value is ready; it has no lock.
type Told struct{ causes map[string]bool }

// most bounds the memory of causes with a name that is another each time.
const most = 100

// Fresh reports that an error has a cause that was not told, and counts it as told.
func (t *Told) Fresh(err error) bool {
	cause := strings.Map(noDigits, err.Error())
	if t.causes[cause] {
		return false
	}
	if t.causes == nil || len(t.causes) >= most {
		t.causes = map[string]bool{}
	}
	t.causes[cause] = true
	return true
}

// noDigits drops numbers: the port of a connection is another with each attempt.
func noDigits(r rune) rune {
	if '0' <= r && r <= '9' {
		return -1
	}
	return r
}

// Well forgets them: all is well again.
func (t *Told) Well() { t.causes = nil }
