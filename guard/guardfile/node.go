package guardfile

import (
	"bytes"
	"unicode/utf8"
)

// place is where something stands, both from 1.
type place struct{ line, column int }

// placeOf is the place of a byte.
func placeOf(data []byte, offset int) place {
	before := data[:min(max(offset, 0), len(data))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return place{1 + bytes.Count(before, []byte{'\n'}), 1 + utf8.RuneCount(before[start:])}
}

// shape is what a node is, in the words of messages.
type shape string

const (
	isMapping  shape = "a mapping"
	isList     shape = "a list"
	isText     shape = "a text"
	isInteger  shape = "a whole number"
	isFraction shape = "a number with a point or an exponent"
	isBoolean  shape = "true or false"
	isNothing  shape = "nothing"
	isDate     shape = "a date"
	isMerge    shape = "a merge key"
)

// node is a value of a file, of either format. Aliases are the node that they mean, so
// the tree can meet itself.
type node struct {
	place
	is   shape
	text string // of a scalar, as it is written
	keys []*node
	of   []*node // parts of a list, or the values of keys
}
