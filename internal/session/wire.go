package session

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/core"
)

// ErrMalformed is the kind of every decoding error here.
var ErrMalformed = errors.New("malformed message")

// AppendMessage appends the encoding of m to dst. It is self-delimiting, so
// that several make a batch.
func AppendMessage(dst []byte, m *Message) []byte {
	dst = append(dst, MessageVersion, byte(m.Kind))
	dst = append(dst, m.Session[:]...)
	dst = binary.AppendUvarint(dst, m.Stream)
	switch m.Kind {
	case KindFrame:
		dst = appendBytes(dst, m.Body)
	case KindRenewal:
		dst = binary.AppendUvarint(dst, m.Attempt)
		dst = binary.AppendVarint(dst, m.TTL)
	case KindReply:
		dst = binary.AppendUvarint(dst, m.Pushes)
		dst = appendBytes(dst, m.Body)
	case KindRenewed:
		dst = binary.AppendUvarint(dst, m.Pushes)
		dst = binary.AppendUvarint(dst, m.Attempt)
		dst = binary.AppendVarint(dst, m.Now)
		dst = binary.AppendVarint(dst, m.Deadline)
	case KindPush:
		dst = binary.AppendUvarint(dst, m.Pushes)
		dst = appendRow(dst, &m.Rows[0])
	case KindTable:
		dst = appendTable(dst, m)
	case KindRefused:
		dst = appendRefused(dst, m)
	}
	return dst
}

func appendTable(dst []byte, m *Message) []byte {
	dst = binary.AppendUvarint(dst, m.Piece)
	dst = append(dst, flag(m.Last)|flag(m.Known)<<1)
	dst = binary.AppendUvarint(dst, uint64(len(m.Rows)))
	for i := range m.Rows {
		dst = appendRow(dst, &m.Rows[i])
	}
	return dst
}

func appendRefused(dst []byte, m *Message) []byte {
	dst = binary.AppendUvarint(dst, m.Attempt)
	dst = append(dst, byte(m.Refusal), byte(m.Code))
	dst = binary.AppendVarint(dst, m.RetryAfter)
	dst = appendBytes(dst, []byte(m.Text))
	return appendBytes(dst, []byte(m.Endpoint))
}

// appendRow leaves out the session, which is the message's.
func appendRow(dst []byte, r *core.ClaimRow) []byte {
	dst = binary.AppendUvarint(dst, r.Seq)
	dst = append(dst, byte(r.State), byte(r.Code))
	dst = binary.AppendUvarint(dst, r.Token)
	return binary.AppendVarint(dst, r.Deadline)
}

// minRow is the least that a row takes: what bounds the memory that a count of
// rows can ask for.
const minRow = 5

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// DecodeMessage decodes the first message of b and returns what follows it. The
// message's Body aliases b. Every message has exactly one encoding; all else is
// refused, with an error that is ErrMalformed.
func DecodeMessage(b []byte) (m Message, rest []byte, err error) {
	d := decoder{b: b}
	d.message(&m)
	if d.err != nil {
		return Message{}, nil, d.err
	}
	return m, d.b, nil
}

// Cut divides messages: first has as many as fit into size bytes, but at least one.
func Cut(messages []byte, size int) (first, rest []byte) {
	if len(messages) <= size {
		return messages, nil
	}
	n := 0
	for left := messages; len(left) > 0; {
		_, after, err := DecodeMessage(left)
		if err != nil {
			return messages, nil // for its reader to refuse
		}
		if n > 0 && len(messages)-len(after) > size {
			break
		}
		n, left = len(messages)-len(after), after
	}
	return messages[:n], messages[n:]
}

// decoder reads fields until the first mistake; after it every read is zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrMalformed, what)
	}
	d.b = nil
}

func (d *decoder) message(m *Message) {
	if v := d.byte("version"); d.err == nil && v != MessageVersion {
		d.fail(fmt.Sprintf("version %d is not known here; update this program", v))
	}
	m.Kind = MessageKind(d.byte("kind"))
	copy(m.Session[:], d.take(16, "session"))
	m.Stream = d.uvarint("stream")
	switch m.Kind {
	case KindAttach:
	case KindFrame:
		m.Body = d.bytes("frame")
	case KindRenewal:
		m.Attempt, m.TTL = d.uvarint("attempt"), d.ttl()
	case KindReply:
		m.Pushes, m.Body = d.uvarint("pushes"), d.bytes("reply")
	case KindRenewed:
		m.Pushes, m.Attempt = d.uvarint("pushes"), d.uvarint("attempt")
		m.Now, m.Deadline = d.varint("now"), d.varint("deadline")
	case KindPush:
		m.Pushes, m.Rows = d.uvarint("pushes"), d.rows(m.Session, 1)
	case KindTable:
		d.table(m)
	case KindRefused:
		d.refused(m)
	default:
		d.fail(fmt.Sprintf("kind %d is not known here", m.Kind))
	}
}

func (d *decoder) table(m *Message) {
	m.Piece = d.uvarint("piece")
	flags := d.byte("flags")
	if flags > 3 {
		d.fail("unknown table flags")
	}
	m.Last, m.Known = flags&1 != 0, flags&2 != 0
	n := d.uvarint("rows")
	if n > uint64(len(d.b)/minRow) {
		d.fail("more rows than bytes")
		return
	}
	m.Rows = d.rows(m.Session, int(n))
}

func (d *decoder) rows(id core.SessionID, n int) []core.ClaimRow {
	if n == 0 || d.err != nil {
		return nil
	}
	rows := make([]core.ClaimRow, n)
	for i := range rows {
		r := &rows[i]
		r.Session, r.Seq = id, d.uvarint("row number")
		r.State, r.Code = core.ClaimState(d.byte("row state")), core.Code(d.byte("row code"))
		r.Token, r.Deadline = d.uvarint("row token"), d.varint("row deadline")
		if d.err == nil && (r.State < core.ClaimWaiting || r.State > core.ClaimGone) {
			d.fail("unknown claim state")
		}
	}
	return rows
}

func (d *decoder) refused(m *Message) {
	m.Attempt = d.uvarint("attempt")
	m.Refusal, m.Code = Refusal(d.byte("refusal")), core.Code(d.byte("code"))
	m.RetryAfter = d.varint("retry after")
	m.Text, m.Endpoint = string(d.bytes("text")), string(d.bytes("endpoint"))
	if d.err == nil && (m.Refusal < RefusedNoLeader || m.Refusal > RefusedDenied) {
		d.fail("unknown refusal")
	}
}

func (d *decoder) byte(what string) byte {
	if b := d.take(1, what); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (d *decoder) take(n uint64, what string) []byte {
	if d.err != nil || n > uint64(len(d.b)) {
		d.fail(what + " is cut off")
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) bytes(what string) []byte { return d.take(d.uvarint(what), what) }

// ttl is that of a renewal, which goes into the log as it is: no node could apply a
// negative one.
func (d *decoder) ttl() int64 {
	ttl := d.varint("TTL")
	if ttl < 0 {
		d.fail("a renewal for less than nothing")
	}
	return ttl
}

// uvarint takes only the shortest form.
func (d *decoder) uvarint(what string) uint64 {
	v, n := binary.Uvarint(d.b)
	if d.err != nil || n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.fail(what + " is no number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// varint is uvarint for signed numbers, zigzag coded.
func (d *decoder) varint(what string) int64 {
	u := d.uvarint(what)
	return int64(u>>1) ^ -int64(u&1)
}
