package natslink

import (
	"encoding/hex"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/edge"
)

const (
	encoding    = "Content-Encoding"
	traceparent = "traceparent"
	// small is what compressing does not pay for.
	small = 256
	// maxMessage bounds what a message may be when it is no longer compressed.
	maxMessage = 16 << 20
	// headerRoom is more than the headers of a message take.
	headerRoom = 512
)

var (
	errLarge = errors.New("natslink: a message that claims to be larger than any")
	trace    = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
)

// pack is a message on its way. After life, in whole seconds, the stream forgets it; 0: when it
// forgets all.
func pack(subject string, message []byte, parent string, life time.Duration) *nats.Msg {
	m := &nats.Msg{Subject: subject, Data: message, Header: nats.Header{}}
	if len(message) > small {
		if packed := s2.Encode(nil, message); len(packed) < len(message) {
			m.Data = packed
			m.Header[encoding] = []string{"s2"}
		}
	}
	if trace.MatchString(parent) {
		m.Header[traceparent] = []string{parent}
	}
	if life > 0 {
		m.Header[nats.MsgTTLHdr] = []string{strconv.FormatInt(int64((life+time.Second-1)/time.Second), 10)}
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

// subjectOf is the subject of one part of an actor's state. What NATS does not allow in a
// word is written as = with two hexadecimal digits.
func subjectOf(subject string, p edge.Place) string {
	return subject + ".s." + escaped(p.Actor.Node) + "." + strconv.FormatUint(p.Actor.Incarnation, 10) + "." + p.Kind + "." + strconv.Itoa(p.Part)
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
