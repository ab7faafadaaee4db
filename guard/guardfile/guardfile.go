package guardfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/guard"
)

// The bounds of a file; one condition is bounded by package guard.
const (
	// MaxSize is the most bytes of a file.
	MaxSize = 256 << 10
	// MaxConditions is the most conditions of all guards together, aliases written out.
	MaxConditions = 1 << 16
	// MaxErrors is how many errors are told; reading stops there.
	MaxErrors = 20
)

// Guard is one guard of a file.
type Guard struct {
	Name        string
	Description string
	When        guard.Condition
	// Line and Column, from 1, are where its name stands.
	Line, Column int
}

// Error is one thing that is wrong with a file. It is an [fs.ErrInvalid].
type Error struct {
	File string
	// Line and Column count from 1, columns in characters.
	Line, Column int
	// Text says what is wrong, and Hint what may have been meant; it can be empty.
	Text, Hint string
}

// Error is file:line:column, what is wrong, and the hint.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Unwrap is [fs.ErrInvalid].
func (e *Error) Unwrap() error { return fs.ErrInvalid }

// Parse reads the guards of a file, in their order. The file's name is told in errors
// and decides the format: JSON if it ends in .json, else YAML. Nothing is opened.
//
// The error joins an [*Error] for each thing that is wrong, in the order in which they
// were found, at most [MaxErrors]; no guard is returned then.
func Parse(file string, data []byte) ([]Guard, error) {
	p := &parser{file: file, first: "guards:", open: map[*node]bool{}}
	root := p.read(data)
	var guards []Guard
	if root != nil {
		guards = p.guards(root)
	}
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...)
	}
	return guards, nil
}

// read makes a tree of the text, or notes why there is none.
func (p *parser) read(data []byte) *node {
	if len(data) > MaxSize {
		p.fail(place{1, 1}, "", "the file has more than %d bytes", MaxSize)
		return nil
	}
	if !utf8.Valid(data) {
		p.fail(placeOf(data, invalidAt(data)), "save it as UTF-8", "the text is not UTF-8")
		return nil
	}
	if strings.EqualFold(path.Ext(p.file), ".json") {
		return p.readJSON(bytes.TrimPrefix(data, []byte("\ufeff"))) // as YAML takes it
	}
	return p.readYAML(data)
}

// invalidAt is the offset of the first byte that is not UTF-8.
func invalidAt(data []byte) int {
	at := 0
	for at < len(data) {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}
