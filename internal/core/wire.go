package core

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"
)

// Sizes that every decoder keeps to, whatever a length in the input says.
const (
	MaxFrame   = 1 << 20  // bytes of an encoded frame
	MaxCommand = 64 << 10 // bytes of one encoded command
	// MaxParts is how many parts a frame may have that is not in a log yet: its commands,
	// and the wants, compares and key operations of all of them. A part takes three bytes at
	// least and becomes a hundred times as many, so that the length of a frame alone does
	// not bound what it decodes to. Clients send 256 commands and 32 KiB at a time.
	MaxParts = 4096
)

// Times that a decoder believes: cluster time stays so small that no sum with a
// span overflows, and seconds·2²⁰ is a revision below 2⁵³.
const (
	maxNow     = 1 << 62
	maxSeconds = 1 << 33
)

// Seconds is the Unix time of a clock as an entry takes it: a clock that is far off is as
// near as a decoder believes.
func Seconds(unix int64) int64 { return min(max(unix, 0), maxSeconds) }

// What a decoder refuses. The error that wraps one of them names the offset and
// the reason.
var (
	// ErrVersion: the bytes were written by a newer version; upgrade this node.
	ErrVersion = errors.New("core: unknown version")
	// ErrFrame: the bytes are no frame, entry, message or snapshot of ours.
	ErrFrame = errors.New("core: malformed bytes")
	// ErrParts: a frame has more than MaxParts.
	ErrParts = errors.New("core: too many commands and parts in one frame")
)

// The second byte of every message says what it is.
const (
	tagFrame    = 'F'
	tagEntry    = 'E'
	tagReply    = 'R'
	tagRenewed  = 'K'
	tagPush     = 'P'
	tagSnapshot = 'S'
)

// reader decodes b from left to right. The first failure stays; everything read
// after it is zero.
type reader struct {
	b   []byte
	i   int
	err error
	// bounded: only so many more parts may come as left says.
	bounded bool
	left    int
}

// open begins a message of the given tag.
func open(b []byte, tag byte) reader {
	if len(b) >= 2 && b[0] == Version && b[1] == tag {
		return reader{b: b, i: 2}
	}
	return unopened(b, tag, Version)
}

// unopened is a reader that has failed at the header; version is the newest that is
// known.
func unopened(b []byte, tag, version byte) reader {
	r := reader{b: b}
	switch {
	case len(b) < 2:
		r.fail("too short for a header")
	case b[0] == 0 || b[0] > version:
		r.err = fmt.Errorf("%w %d at offset 0: this program knows version %d", ErrVersion, b[0], version)
		r.i = len(b)
	default:
		r.fail(fmt.Sprintf("message tag %q, want %q", b[1], tag))
	}
	return r
}

func header(dst []byte, tag byte) []byte { return append(dst, Version, tag) }

func (r *reader) fail(reason string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w at offset %d: %s", ErrFrame, r.i, reason)
	}
	r.i = len(r.b)
}

// end is the message's error; bytes that nothing has read are one.
func (r *reader) end() error {
	if r.err == nil && r.i != len(r.b) {
		r.fail("trailing bytes")
	}
	return r.err
}

func (r *reader) rest() int { return len(r.b) - r.i }

func (r *reader) byte() byte {
	if r.i >= len(r.b) {
		r.fail("input ends early")
		return 0
	}
	r.i++
	return r.b[r.i-1]
}

// enum reads a byte that must not exceed last: a greater one is from a version
// that this program does not know.
func (r *reader) enum(last byte, what string) byte {
	v := r.byte()
	if v > last {
		r.i--
		r.fail("unknown " + what)
		return 0
	}
	return v
}

func (r *reader) uvarint() uint64 {
	if r.i < len(r.b) && r.b[r.i] < 0x80 {
		r.i++
		return uint64(r.b[r.i-1])
	}
	if r.i+1 < len(r.b) && r.b[r.i+1]-1 < 0x7f { // of two bytes, the second not 0
		r.i += 2
		return uint64(r.b[r.i-2]&0x7f) | uint64(r.b[r.i-1])<<7
	}
	return r.longUvarint()
}

func (r *reader) longUvarint() uint64 {
	var v uint64
	for n, b := range r.b[r.i:] {
		v |= uint64(b&0x7f) << (7 * n)
		switch {
		case n == binary.MaxVarintLen64-1 && b > 1:
			r.fail("bad number")
			return 0
		case b == 0 && n > 0:
			r.fail("number longer than need be")
			return 0
		case b < 0x80:
			r.i += n + 1
			return v
		}
	}
	r.fail("bad number")
	return 0
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// span reads a length and returns that many bytes of the input itself.
func (r *reader) span() []byte {
	n := r.uvarint()
	if n > uint64(r.rest()) {
		r.fail("length beyond the end")
		return nil
	}
	r.i += int(n)
	return r.b[r.i-int(n) : r.i : r.i]
}

// bytes is span, with nil for nothing.
func (r *reader) bytes() []byte {
	if b := r.span(); len(b) > 0 {
		return b
	}
	return nil
}

// string aliases the input: it is valid as long as the input is unchanged.
func (r *reader) string() string {
	b := r.span()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func (r *reader) id() (id SessionID) {
	if r.rest() < len(id) {
		r.fail("input ends early")
		return id
	}
	r.i += copy(id[:], r.b[r.i:])
	return id
}

// count reads the number of elements that follow, each at least one byte.
func (r *reader) count() int {
	n := r.uvarint()
	if n > uint64(r.rest()) {
		r.fail("more elements than bytes")
		return 0
	}
	return int(n)
}

// parts is count for the parts of a frame.
func (r *reader) parts() int {
	n := r.count()
	if r.bounded && n > r.left {
		r.err, r.i = fmt.Errorf("%w: at most %d are taken at a time", ErrParts, MaxParts), len(r.b)
		return 0
	}
	r.left -= n
	return n
}

// flag turns a byte into a bool; only 0 and 1 are one.
func (r *reader) flag(b byte) bool {
	if b > 1 {
		r.fail("flag is neither 0 nor 1")
	}
	return b == 1
}

// absent checks a field that a mask announced: an empty one has two spellings,
// and only one may be valid.
func (r *reader) absent(empty bool) {
	if empty && r.err == nil {
		r.fail("announced field is empty")
	}
}

// The some-methods read what a mask announced: zero is refused.

func (r *reader) some() uint64 {
	v := r.uvarint()
	r.absent(v == 0)
	return v
}

func (r *reader) someSigned() int64 {
	v := r.varint()
	r.absent(v == 0)
	return v
}

func (r *reader) someEnum(last byte, what string) byte {
	v := r.enum(last, what)
	r.absent(v == 0)
	return v
}

func (r *reader) someString() string {
	s := r.string()
	r.absent(s == "")
	return s
}

func (r *reader) someBytes() []byte {
	b := r.span()
	r.absent(len(b) == 0)
	return b
}

// duration reads a number of nanoseconds or a point in cluster time that is
// never negative.
func (r *reader) duration() int64 {
	u := r.uvarint()
	if u > math.MaxInt64 {
		r.fail("time out of range")
		return 0
	}
	return int64(u)
}

func appendString[T ~string | ~[]byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// grow makes s longer by one element, which keeps what it last held: its slices
// can be used again.
func grow[T any](s []T) []T {
	if len(s) < cap(s) {
		return s[:len(s)+1]
	}
	var zero T
	return append(s, zero)
}
