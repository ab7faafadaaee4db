package filehold

import (
	"bytes"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// What decodes encodes to the same bytes, and nothing panics.

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
	good := newControl(time.Unix(1<<31, 0), 5)
	f.Add(good)
	f.Add(good[:100])
	f.Fuzz(func(t *testing.T, b []byte) {
		if checkControl(b) == nil && len(b) != controlSize {
			t.Fatalf("%d bytes are taken", len(b))
		}
	})
}

// A flipped bit in a ceiling never passes.
func TestFlippedBits(t *testing.T) {
	control := newControl(time.Unix(1<<31, 0), 5)
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
