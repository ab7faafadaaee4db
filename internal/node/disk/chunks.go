package disk

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/core"
)

// A snapshot's body is the chunks of a view, each behind its length: they are
// checked one by one, but travel and are read in pieces of any size.
func appendChunk(dst, chunk []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(chunk))), chunk...)
}

// maxChunk is more than any node writes: a greater length is garbage.
const maxChunk = 256 << 20

// splitter gives chunks from pieces.
type splitter struct {
	buf  []byte
	take func(chunk []byte) error
}

func (s *splitter) Write(p []byte) (int, error) {
	s.buf = append(s.buf, p...)
	for {
		size, n := binary.Uvarint(s.buf)
		if n < 0 || size > maxChunk {
			return 0, fmt.Errorf("%w: a snapshot with a chunk of senseless length", core.ErrFrame)
		}
		if n == 0 || uint64(len(s.buf)-n) < size {
			return len(p), nil
		}
		end := n + int(size)
		if err := s.take(s.buf[n:end]); err != nil {
			return 0, err
		}
		s.buf = append(s.buf[:0], s.buf[end:]...)
	}
}
