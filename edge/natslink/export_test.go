package natslink

import (
	"time"

	"github.com/nats-io/nats.go"
)

// Flush waits until the server has what was sent.
func (l *Link) Flush() error { return l.conn.Flush() }

// Unanswered is how many states wait for the server's answer.
func (l *Link) Unanswered() int {
	l.answers.mu.Lock()
	defer l.answers.mu.Unlock()
	return len(l.answers.waiting)
}

// Packed is how a large message travels.
func Packed(message []byte) []byte { return pack("s", message, "", 0).Data }

// Unpack reads a message that claims to be compressed, or not.
func Unpack(data []byte, compressed bool) ([]byte, error) {
	m := &nats.Msg{Data: data}
	if compressed {
		m.Header = nats.Header{encoding: {"s2"}}
	}
	return unpack(m)
}

// PackAndBack is a message as it arrives.
func PackAndBack(message []byte, parent string) ([]byte, error) {
	return unpack(pack("s", message, parent, 0))
}

// AnswerWithin has states be answered, and read, within another time; before Listen.
func (l *Link) AnswerWithin(d time.Duration) { l.answers.within = d }
