package filehold

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A kernel with pages of 16 or 64 KiB maps nothing from within one: of the second chunk of slots and those after it
// the mapping begins where a page does, and the chunk is its end.
func TestMapPages(t *testing.T) {
	const size = chunkSlots * slotSize
	f, err := os.Create(filepath.Join(t.TempDir(), "claims"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := range 5 {
		if _, err := f.Write(bytes.Repeat([]byte{byte('a' + chunk)}, size)); err != nil {
			t.Fatal(err)
		}
	}
	for _, page := range []int{4 << 10, 16 << 10, 64 << 10} {
		for chunk := range 5 {
			at := int64(chunk * size)
			m, err := mapPages(f, at, size, page)
			if err != nil {
				t.Fatal(err)
			}
			if from := at - int64(len(m)-size); from%int64(page) != 0 {
				t.Errorf("pages of %d: chunk %d is mapped from %d on", page, chunk, from)
			}
			if want := bytes.Repeat([]byte{byte('a' + chunk)}, size); !bytes.Equal(m[len(m)-size:], want) {
				t.Errorf("pages of %d: the mapping of chunk %d does not end with it", page, chunk)
			}
			if err := syscall.Munmap(m); err != nil {
				t.Error(err)
			}
		}
	}
}
