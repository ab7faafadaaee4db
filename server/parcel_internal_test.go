package server

import (
	"bytes"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// FuzzParcel decodes what goes before a snapshot from any bytes; what is taken
// encodes to the same.
func FuzzParcel(f *testing.F) {
	f.Add(encodeParcel(storage.SnapshotMeta{Index: 7, Term: 2, Conf: []byte("conf")}, [32]byte{1}, []byte("message")))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		meta, sum, message, err := decodeParcel(b)
		if err != nil {
			return
		}
		if again := encodeParcel(meta, sum, message); !bytes.Equal(again, b) {
			t.Errorf("%x becomes %x", b, again)
		}
	})
}
