package natslink

import (
	"encoding/hex"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/crdt"
)

const (
	encoding    = "Content-Encoding"
	traceparent = "traceparent"
	// small is what compressing does not pay for.
	small = 256
	// maxMessage bounds what a message may be when it is no longer compressed.
	maxMessage = 16 << 20
)

var (
	errLarge = errors.New("natslink: a message that claims to be larger than any")
	trace    = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
)

// pack is a message on its way.
func pack(subject string, message []byte, parent string) *nats.Msg {
	m := &nats.Msg{Subject: subject, Data: message}
	if len(message) > small {
		if packed := s2.Encode(nil, message); len(packed) < len(message) {
			m.Data = packed
			m.Header = nats.Header{encoding: {"s2"}}
		}
	}
	if trace.MatchString(parent) {
		if m.Header == nil {
			m.Header = nats.Header{}
		}
		m.Header[traceparent] = []string{parent}
	}
	return m
}

// unpack is the message that was sent. What claims to be larger than any message is
// refused before memory is taken for it.
func unpack(m *nats.Msg) ([]byte, error) {
	if v := m.Header[encoding]; len(v) != 1 || v[0] != "s2" {
		return m.Data, nil
	}
	if n, err := s2.DecodedLen(m.Data); err != nil || n > maxMessage {
		return nil, errLarge
	}
	return s2.Decode(nil, m.Data)
}

// place is the subject of one part of an actor's state. What NATS does not allow in a
// word is written as = with two hexadecimal digits.
func place(subject string, a crdt.Actor, part int) string {
	return subject + ".s." + escaped(a.Node) + "." + strconv.FormatUint(a.Incarnation, 10) + "." + strconv.Itoa(part)
}

func escaped(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			b.WriteByte(c)
			continue
		}
		b.WriteString("=" + strings.ToUpper(hex.EncodeToString([]byte{c})))
	}
	return b.String()
}
