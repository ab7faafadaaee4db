package filelog

import (
	"bytes"
	"testing"
)

// What decodes encodes to the same bytes, and nothing panics.

func FuzzRecord(f *testing.F) {
	f.Add(encoded(f, Record{1, []byte("body")}, Record{Kind: Moved}))
	f.Add([]byte{255, 255, 255, 255, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		for {
			r, rest, err := decodeRecord(b)
			if err != nil {
				return
			}
			if again := encoded(t, r); !bytes.Equal(again, b[:len(b)-len(rest)]) {
				t.Fatalf("%x became %x", b, again)
			}
			b = rest
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(appendHeader(nil, header{3, 99}))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHeader(b)
		if err == nil && !bytes.Equal(appendHeader(nil, h), b[:headerSize]) {
			t.Fatalf("%x became %x", b, appendHeader(nil, h))
		}
	})
}

func encoded(t testing.TB, records ...Record) (b []byte) {
	t.Helper()
	for _, r := range records {
		var err error
		if b, err = appendRecord(b, r); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// A flipped bit in a header or a record never passes.
func TestFlippedBits(t *testing.T) {
	record := encoded(t, Record{1, []byte("some body")})
	head := appendHeader(nil, header{2, 77})
	for bit := range 8 * len(record) {
		record[bit/8] ^= 1 << (bit % 8)
		if _, _, err := decodeRecord(record); err == nil {
			t.Errorf("bit %d of a record", bit)
		}
		record[bit/8] ^= 1 << (bit % 8)
	}
	for bit := range 8 * len(head) {
		head[bit/8] ^= 1 << (bit % 8)
		if _, err := decodeHeader(head); err == nil {
			t.Errorf("bit %d of a header", bit)
		}
		head[bit/8] ^= 1 << (bit % 8)
	}
}

// The largest record that is written can be read, and one byte more is not written.
func TestLargestRecord(t *testing.T) {
	b := encoded(t, Record{1, make([]byte, MaxRecord)})
	if r, rest, err := decodeRecord(b); err != nil || len(r.Body) != MaxRecord || len(rest) > 0 {
		t.Errorf("the largest record: %d bytes, %d more, %v", len(r.Body), len(rest), err)
	}
	if b, err := appendRecord(nil, Record{1, make([]byte, MaxRecord+1)}); err == nil || len(b) > 0 {
		t.Errorf("a larger record was written: %d bytes, %v", len(b), err)
	}
}
