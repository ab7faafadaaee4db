// Package owner makes the name of a holder that has chosen none.
package owner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxProgram is the longest that a file is called on Linux; a program can call itself anything.
const maxProgram = 255

// Of is host/pid/program. Files may be called by any bytes: what no owner may have is ?.
func Of(program string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s/%d/%s", text(host), os.Getpid(), text(filepath.Base(program)))
}

// text is s without what could not be shown everywhere.
func text(s string) string {
	shown := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
	return strings.ToValidUTF8(shown[:min(len(shown), maxProgram)], "")
}
