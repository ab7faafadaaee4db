package filehold

import (
	"bytes"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

// What decodes encodes to the same bytes, and nothing panics.

func FuzzRecord(f *testing.F) {
	f.Add(appendRecord(appendRecord(nil, recEntry, []byte("body")), recMoved, nil))
	f.Add([]byte{255, 255, 255, 255, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		for {
			kind, body, rest, err := decodeRecord(b)
			if err != nil {
				return
			}
			if again := appendRecord(nil, kind, body); !bytes.Equal(again, b[:len(b)-len(rest)]) {
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

func FuzzLockEvent(f *testing.F) {
	e := lockEvent{verb: core.VerbAcquired, kind: core.Mutex, token: 7, owner: "who", name: "what"}
	f.Add(appendLockEvent(nil, &e))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeLockEvent(b)
		if err == nil && !bytes.Equal(appendLockEvent(nil, &e), b) {
			t.Fatalf("%x became %x", b, appendLockEvent(nil, &e))
		}
	})
}

func FuzzMembers(f *testing.F) {
	f.Add(appendMembers(nil, []core.SessionID{{1}, {2}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		ids, err := decodeMembers(b)
		if err == nil && !bytes.Equal(appendMembers(nil, ids), b) {
			t.Fatalf("%x became %x", b, appendMembers(nil, ids))
		}
	})
}

func FuzzSlots(f *testing.F) {
	one := appendSlot(nil, &slot{state: slotHolds, kind: core.RWMutex, mode: core.Shared, token: 5, since: -1, name: "n"})
	f.Add(append(one, make([]byte, slotSize)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, s := range decodeSlots(b) {
			again, ok := decodeSlot(appendSlot(nil, &s))
			if !ok || again != s {
				t.Fatalf("%+v became %+v", s, again)
			}
		}
	})
}

func FuzzControl(f *testing.F) {
	good := newControl(1<<31, 5)
	f.Add(good)
	f.Add(good[:100])
	f.Fuzz(func(t *testing.T, b []byte) {
		if checkControl(b) == nil && len(b) != controlSize {
			t.Fatalf("%d bytes are taken", len(b))
		}
	})
}

// A flipped bit in a ceiling, a header or a record never passes.
func TestFlippedBits(t *testing.T) {
	record := appendRecord(nil, recEntry, []byte("some body"))
	head := appendHeader(nil, header{2, 77})
	control := newControl(1<<31, 5)
	for bit := range 8 * len(record) {
		record[bit/8] ^= 1 << (bit % 8)
		if _, _, _, err := decodeRecord(record); err == nil {
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
	for _, word := range []int{wMagic, wCeiling, wCeilingN, wRevisions, wRevisionN} {
		for bit := range 64 {
			control[8*word+bit/8] ^= 1 << (bit % 8)
			if checkControl(control) == nil {
				t.Errorf("bit %d of word %d", bit, word)
			}
			control[8*word+bit/8] ^= 1 << (bit % 8)
		}
	}
	if err := checkControl(control); err != nil {
		t.Error(err)
	}
}
