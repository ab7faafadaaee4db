package holdfast

import (
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/driver"
)

// defaultMaxName is the longest name in bytes unless the backend says less.
const defaultMaxName = 512

// checkName refuses what no backend could keep. It looks at the whole name,
// with the prefixes of Sub, since that is what the backend sees.
func checkName(name string, longest int) error {
	if name == "" {
		return invalid("a name is empty; give 1 to %d bytes", longest)
	}
	return checkPrefix(name, longest)
}

// checkPrefix is checkName for prefixes, which may be empty.
func checkPrefix(name string, longest int) error {
	if len(name) > longest {
		return invalid("the name has %d bytes; at most %d are allowed", len(name), longest)
	}
	return checkText("name", name)
}

// checkText refuses text that could not be shown or compared everywhere.
func checkText(what, s string) error {
	for i, r := range s {
		if r == utf8.RuneError && !utf8.ValidString(s) {
			return invalid("the %s is not UTF-8 at byte %d", what, i)
		}
		if unicode.IsControl(r) {
			return invalid("the %s has the control character %U at byte %d", what, r, i)
		}
	}
	return nil
}

// invalid is a refusal before anything was asked of the backend; operation and
// name are filled in by the call that returns it.
func invalid(format string, args ...any) error {
	return driver.Errorf("", "", ErrInvalid, format, args...)
}
