package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A connection begins with a hello from each side, the dialler's first:
//
//	magic    4 bytes  "HFPT"
//	version  1 byte
//	purpose  1 byte   messages, a snapshot or a question
//	cluster  8 bytes  little endian, like all numbers here
//	group    8 bytes
//	from     8 bytes
//	to       8 bytes
//	dir      8 bytes  the sender's directory
//	known    8 bytes  what the sender knows to be the other's; 0: nothing
//	least    1 byte   the versions that the sender supports
//	newest   1 byte
//	current  1 byte   the cluster version as the sender knows it; 0: not at all, or it is only on its way into the group
//	check    4 bytes  CRC-32C of the above
//
// Then follow frames:
//
//	length   4 bytes  of the payload
//	check    4 bytes  CRC-32C of length and payload
//	payload
//
// Messages go from the dialler to the other side. If the dialler sends an empty frame, they may go
// back, too; a node that does not know that drops it, as it drops every message of unknown form.
const (
	version   = 3
	helloSize = 61
	frameHead = 8
	// MaxFrame bounds what one frame may hold; a longer one is garbage.
	MaxFrame = 16 << 20
)

var magic = [4]byte{'H', 'F', 'P', 'T'}

// So begins what a node says that speaks TLS.
const tlsHandshake, tlsMajor = 22, 3

var table = crc32.MakeTable(crc32.Castagnoli)

// purpose is what a connection is for.
type purpose uint8

const (
	forMessages purpose = 1 + iota
	forSnapshot
	forQuestion
)

// hello names the node that dials and the one that is meant.
type hello struct {
	purpose                  purpose
	cluster, group, from, to uint64
	dir, known               uint64
	versions                 Versions
	current                  uint8
}

func (h hello) encode() []byte {
	b := make([]byte, 0, helloSize)
	b = append(b, magic[:]...)
	b = append(b, version, byte(h.purpose))
	for _, v := range []uint64{h.cluster, h.group, h.from, h.to, h.dir, h.known} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = append(b, h.versions.Least, h.versions.Newest, h.current)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, table))
}

// ErrHandshake is the kind of every refusal at the door.
var ErrHandshake = errors.New("refused at the handshake")

// ErrStranger is the kind of a refusal that says that this very node is not the one
// that the other side knows by its number: its directory was lost, or it was
// removed.
var ErrStranger = errors.New("the group does not know this directory")

// ErrVersion is the kind of a refusal that says that this very node does not support
// the version of the group.
var ErrVersion = errors.New("this node has to be upgraded")

// ErrRemoved is ErrStranger for a node that was removed.
var ErrRemoved = fmt.Errorf("%w any more", ErrStranger)

func decodeHello(b []byte) (hello, error) {
	var h hello
	switch {
	case len(b) == helloSize && b[0] == tlsHandshake && b[1] == tlsMajor:
		return h, fmt.Errorf("%w: %w", ErrHandshake, errPlain)
	case len(b) != helloSize || [4]byte(b[:4]) != magic:
		return h, fmt.Errorf("%w: this is not a node of Holdfast", ErrHandshake)
	case b[4] != version:
		return h, fmt.Errorf("%w: version %d is not known here; run the same version on both nodes", ErrHandshake, b[4])
	case binary.LittleEndian.Uint32(b[helloSize-4:]) != crc32.Checksum(b[:helloSize-4], table):
		return h, fmt.Errorf("%w: the hello arrived damaged", ErrHandshake)
	}
	h.purpose = purpose(b[5])
	for i, v := range []*uint64{&h.cluster, &h.group, &h.from, &h.to, &h.dir, &h.known} {
		*v = binary.LittleEndian.Uint64(b[6+8*i:])
	}
	h.versions, h.current = Versions{b[54], b[55]}, b[56]
	if h.purpose < forMessages || h.purpose > forQuestion {
		return h, fmt.Errorf("%w: unknown purpose %d", ErrHandshake, h.purpose)
	}
	return h, nil
}

func readHello(r io.Reader) (hello, error) {
	var b [helloSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return hello{}, fmt.Errorf("%w: no hello: %w", ErrHandshake, err)
	}
	return decodeHello(b[:])
}

// appendFrame appends a frame with the payload p.
func appendFrame(dst, p []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(p)))
	dst = append(dst, 0, 0, 0, 0)
	dst = append(dst, p...)
	binary.LittleEndian.PutUint32(dst[at+4:], frameSum(dst[at:at+4], p))
	return dst
}

func frameSum(head, p []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, table), table, p)
}

// readFrame reads one frame. The length is bounded before it is believed.
func readFrame(r io.Reader) ([]byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > MaxFrame {
		return nil, fmt.Errorf("transport: a frame of %d bytes, more than %d: the connection is not to be trusted", size, MaxFrame)
	}
	p, err := readExactly(r, int(size))
	if err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(head[4:]) != frameSum(head[:4], p) {
		return nil, errors.New("transport: a frame arrived damaged")
	}
	return p, nil
}

// readExactly reads size bytes, asking for memory only as they come.
func readExactly(r io.Reader, size int) ([]byte, error) {
	const step = 64 << 10
	var p []byte
	for len(p) < size {
		at := len(p)
		p = append(p, make([]byte, min(step, size-at))...)
		if _, err := io.ReadFull(r, p[at:]); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
	}
	return p, nil
}
