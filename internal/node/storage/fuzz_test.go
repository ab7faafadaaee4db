package storage_test

import (
	"bytes"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// FuzzRecord: no bytes make the decoder panic, and what it accepts is exactly
// what the encoder writes. Each input is tried as it is and with its checksums
// put right, so that the fuzzer gets past them.
func FuzzRecord(f *testing.F) {
	const seed = 77
	f.Add(storage.EncodeEntries(entries(5, 9, 3, 20), seed))
	f.Add(storage.EncodeEntries(entries(1, 1, 1, 0), seed))
	f.Add(make([]byte, storage.RecordHeader))
	f.Fuzz(func(t *testing.T, b []byte) {
		checkRecord(t, b, seed)
		if len(b) >= storage.RecordHeader {
			b = bytes.Clone(b)
			storage.SealRecord(b, seed)
			checkRecord(t, b, seed)
		}
	})
}

func checkRecord(t *testing.T, b []byte, seed uint32) {
	got, again, err := storage.DecodeRecord(b, seed)
	if err != nil {
		return
	}
	if !bytes.Equal(again, b[:len(again)]) {
		t.Errorf("decoded %d entries, encoding them gives other bytes", len(got))
	}
	if allZero(b[:storage.RecordHeader]) {
		t.Error("zeros are a valid record")
	}
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// fuzzFixed is the same for headers of fixed size.
func fuzzFixed(f *testing.F, size int, seed uint32, round func([]byte) ([]byte, error)) {
	good, _ := round(make([]byte, size))
	f.Add(good)
	f.Add(make([]byte, size))
	f.Fuzz(func(t *testing.T, b []byte) {
		for range 2 {
			again, err := round(b)
			if err == nil && (!bytes.Equal(again, b[:size]) || allZero(b[:size])) {
				t.Errorf("accepted %x, encodes as %x", b[:size], again)
			}
			if len(b) < size {
				return
			}
			b = bytes.Clone(b[:size])
			storage.SealFixed(b, seed)
		}
	})
}

func FuzzIdentity(f *testing.F) {
	fuzzFixed(f, 64, 0, storage.RoundIdentity)
}

func FuzzVoteSlot(f *testing.F) {
	fuzzFixed(f, storage.SlotSize, storage.SlotSeed(9, 1), func(b []byte) ([]byte, error) { return storage.RoundSlot(b, 1, 9) })
}

func FuzzSegmentHeader(f *testing.F) {
	fuzzFixed(f, storage.SegmentHeader, storage.Seed(9, 4, 0), func(b []byte) ([]byte, error) { return storage.RoundSegment(b, 4, 9) })
}

func FuzzSnapshotHeader(f *testing.F) {
	fuzzFixed(f, storage.SnapHeader, 0, func(b []byte) ([]byte, error) { return storage.RoundSnapshot(b, 1000) })
}
