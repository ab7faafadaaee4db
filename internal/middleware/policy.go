package middleware

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Policy is the name of a rate as fields of headers tell it; "" is "default". Those are ASCII: all
// other bytes of a name are escaped as in a URL, and so is the sign of that, so that two names stay two.
func Policy(name string) string {
	if name == "" {
		return "default"
	}
	if !strings.ContainsFunc(name, escaped) {
		return name
	}
	var out strings.Builder
	for _, c := range []byte(name) {
		if escaped(rune(c)) {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// escaped: no character of a string in a header, or the sign of those.
func escaped(c rune) bool { return c < ' ' || c > '~' || c == '%' }

// Quoted is a string of structured fields (RFC 8941).
func Quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// Seconds is a time in whole seconds, rounded up: a client that comes then is not early.
func Seconds(d time.Duration) string {
	whole := d / time.Second
	if d%time.Second > 0 {
		whole++
	}
	return strconv.FormatInt(int64(whole), 10)
}
