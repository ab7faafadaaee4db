package redishold

import (
	"errors"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/driver"
)

// message is what one script published: everything that happened at the
// revisions first to last.
type message struct {
	first, last driver.Revision
	events      []driver.Event // with Prev where there was something before
}

var errMessage = errors.New("the message is not of this version")

// decode reads a message; what it returns shares nothing with text.
func decode(text string) (message, error) {
	fields, err := split(text)
	if err != nil {
		return message{}, err
	}
	r := reader{rest: fields}
	m := message{first: r.revision(), last: r.revision()}
	for !r.empty() {
		e := r.event()
		if n := len(m.events); n > 0 && m.events[n-1].Revision == e.Revision {
			e.Ordinal = m.events[n-1].Ordinal + 1
		}
		m.events = append(m.events, e)
	}
	if r.err == nil && (m.first == 0 || m.last < m.first) {
		r.err = errMessage
	}
	return m, r.err
}

// split takes a row of texts apart, each with its length and a colon before it.
func split(text string) ([]string, error) {
	var fields []string
	for len(text) > 0 {
		length, rest, ok := strings.Cut(text, ":")
		n, err := strconv.Atoi(length)
		if !ok || err != nil || n < 0 || n > len(rest) {
			return nil, errMessage
		}
		fields = append(fields, rest[:n])
		text = rest[n:]
	}
	return fields, nil
}

func (r *reader) event() driver.Event {
	e := driver.Event{
		Revision: r.revision(), Kind: r.text(), Verb: r.text(), Name: r.text(), Token: r.token(), Owner: r.text(),
		Mode: driver.Mode(r.int()), Weight: r.int(), Session: r.session(), Value: []byte(r.text()), Reason: r.text(), Number: r.uint(),
	}
	switch e.Kind {
	case "counter":
		if e.Mode == 1 { // it is unsigned
			e.Number ^= bias
		}
		e.Mode = 0
	case "sequence":
		if e.Verb == "reserved" { // else it has no number
			e.Number ^= bias
		}
	}
	for n := r.int(); n > 0 && r.err == nil; n-- {
		kv := r.kv()
		if e.KV == nil {
			e.KV = &kv
		} else {
			e.Prev = &kv
		}
	}
	return e
}
