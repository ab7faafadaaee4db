package middleware

import (
	"fmt"
	"strings"
)

// Policy is the name of a rate as fields of headers tell it; "" is "default". Those are ASCII: of a
// name that is not, all other bytes are escaped as in a URL, so that two names stay two.
func Policy(name string) string {
	if name == "" {
		return "default"
	}
	if !strings.ContainsFunc(name, foreign) {
		return name
	}
	var out strings.Builder
	for _, c := range []byte(name) {
		if foreign(rune(c)) || c == '%' {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// foreign: no character of a string in a header.
func foreign(c rune) bool { return c < ' ' || c > '~' }

// Quoted is a string of structured fields (RFC 8941).
func Quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}
