package storage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// writesNothing fails the test when a refused Open changes the disk.
func writesNothing(t *testing.T, disk *simdisk.Disk) *simdisk.Faults {
	return &simdisk.Faults{FS: disk, Check: func(op simdisk.Op) error {
		if op.Writes() {
			t.Fatalf("%s %s before the damage was noticed", op.Kind, op.Name)
		}
		return nil
	}}
}

// flips counts what became of flipped bits.
type flips struct{ detected, harmless, torn int }

// share is the part of the bits of large files that is flipped: one in seven,
// which is every byte and every position in a byte, or all of them.
func share() int { return effort(7, 1, 61) }

// flipAll flips every step-th bit of a file in turn, opens, and lets judge look
// at a store that opened; judge returns whether its last record was lost.
func flipAll(t *testing.T, built *simdisk.Disk, name string, step int, count *flips, judge func(bit int, s *storage.Store, rec storage.Recovered) bool) {
	t.Helper()
	flipFirst(t, built, name, built.Bytes(dir+"/"+name), step, count, judge)
}

// flipFirst does the same with the first bytes of a file only.
func flipFirst(t *testing.T, built *simdisk.Disk, name string, bytes, step int, count *flips, judge func(bit int, s *storage.Store, rec storage.Recovered) bool) {
	t.Helper()
	disk := built.Clone()
	for bit := 0; bit < bytes*8; bit += step {
		disk.Flip(dir+"/"+name, bit)
		s, rec, err := storage.Open(disk, dir, options)
		if err != nil {
			if !errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), dir+"/") {
				t.Fatalf("bit %d of %s: %v, want damage that names the file", bit, name, err)
			}
			count.detected++
			disk.Flip(dir+"/"+name, bit)
			continue
		}
		if judge(bit, s, rec) {
			count.torn++
		} else {
			count.harmless++
		}
		s.Close()
		disk = built.Clone()
	}
}

// twoHundred builds a log of 200 entries, one record each, over several segments.
// Their size leaves hardly any byte unused.
func twoHundred(t *testing.T) (*simdisk.Disk, *twin) {
	disk, w := simdisk.New(), &twin{}
	snug := options
	snug.SegmentSize = 7168
	s, _, err := storage.Open(disk, dir, snug)
	must(t, err)
	for i := range uint64(200) {
		b := storage.Batch{HardState: hard(1, 1, i), Entries: entries(i+1, i+1, 1, 8)}
		must(t, s.Append(b))
		w.append(b)
	}
	return disk, w
}

func segments(disk *simdisk.Disk) []string {
	names, _ := disk.List(dir)
	var out []string
	for _, name := range names {
		if strings.HasPrefix(name, "log-") {
			out = append(out, name)
		}
	}
	return out
}

// Promise: a flipped bit anywhere in a log of 200 entries is reported or
// harmless; only in the very last record does it look like a torn write.
func TestFlipEveryBitOfLog(t *testing.T) {
	disk, w := twoHundred(t)
	power := disk.Crash(lose) // the last record is vouched for by nobody
	short := w.clone()
	short.entries = short.entries[:199]
	var count flips
	names := segments(disk)
	for _, name := range names {
		flipAll(t, power, name, share(), &count, func(bit int, s *storage.Store, rec storage.Recovered) bool {
			if w.sameLog(s) == nil {
				return false
			}
			if err := short.sameLog(s); err != nil || name != names[len(names)-1] {
				t.Fatalf("bit %d of %s: wrong data without an error: %v", bit, name, err)
			}
			return true
		})
	}
	record := (storage.RecordHeader + 16 + 8) * 8 / share()
	if count.torn < record || count.torn > record+1 {
		t.Errorf("%d bits look like a torn write, want the %d of the last record", count.torn, record)
	}
	t.Logf("%d segments, one bit in %d, last record not vouched for: %d flips detected, %d in unused bytes, %d look like a torn last record",
		len(names), share(), count.detected, count.harmless, count.torn)
}

// Promise: after Close, Mark or a snapshot, not even the last record can vanish
// unnoticed.
func TestFlipEveryBitOfVouchedRecord(t *testing.T) {
	for _, end := range []struct {
		name string
		do   func(*storage.Store) error
	}{
		{"close", (*storage.Store).Close},
		{"mark", (*storage.Store).Mark},
		{"snapshot", func(s *storage.Store) error { return create(s, meta(3, 1)) }},
	} {
		disk := simdisk.New()
		s, _ := mustOpen(t, disk)
		w := &twin{}
		b := storage.Batch{HardState: hard(1, 0, 0), Entries: entries(1, 3, 1, 8)}
		w.append(b)
		must(t, s.Append(b))
		must(t, end.do(s))
		var count flips
		used := storage.SegmentHeader + storage.RecordHeader + 3*(16+8)
		flipFirst(t, disk.Crash(lose), segments(disk)[0], used+8, 1, &count, func(bit int, s *storage.Store, _ storage.Recovered) bool {
			if err := w.sameLog(s); err != nil {
				t.Fatalf("%s, bit %d: %v", end.name, bit, err)
			}
			return false
		})
		if count.detected != used*8 {
			t.Errorf("%s: %d flips detected, want all %d of header and record", end.name, count.detected, used*8)
		}
	}
}

// Promise: a flip in the only snapshot that covers the beginning of the log is
// damage; with an older one plus log behind it, it costs nothing.
func TestFlipEveryBitOfSnapshot(t *testing.T) {
	build := func(compact uint64) (*simdisk.Disk, *twin) {
		disk, w := simdisk.New(), &twin{}
		s, _ := mustOpen(t, disk)
		b := storage.Batch{HardState: hard(1, 0, 0), Entries: entries(1, 30, 1, 8)}
		must(t, s.Append(b))
		must(t, create(s, meta(10, 1)))
		must(t, create(s, meta(20, 1)))
		must(t, s.Compact(compact))
		w.append(b)
		w.compact(compact)
		w.snap = meta(10, 1)
		return disk.Crash(lose), w
	}
	name := "snap-0000000000000014"

	disk, _ := build(15)
	var needed flips
	flipAll(t, disk, name, 1, &needed, func(bit int, _ *storage.Store, _ storage.Recovered) bool {
		t.Fatalf("bit %d of the only snapshot: opened", bit)
		return false
	})
	disk, w := build(10)
	var covered flips
	flipAll(t, disk, name, 1, &covered, func(bit int, s *storage.Store, rec storage.Recovered) bool {
		if err := errors.Join(w.sameLog(s), w.sameSnapshot(s)); err != nil {
			t.Fatalf("bit %d of a covered snapshot: %v", bit, err)
		}
		if len(rec.Findings) == 0 || rec.Findings[0].Kind != storage.BadSnapshot || rec.Findings[0].File != name {
			t.Fatalf("bit %d: findings %v do not name the snapshot", bit, rec.Findings)
		}
		return false
	})
	if bits := disk.Bytes(dir+"/"+name) * 8; needed.detected != bits || covered.harmless != bits {
		t.Errorf("%d bits: %+v, %+v", bits, needed, covered)
	}
	t.Logf("%d flips detected when needed, %d replaced by the older snapshot plus log", needed.detected, covered.harmless)
}

// Promise: a vote that left the node survives any flipped bit in its file.
func TestFlipEveryBitOfVote(t *testing.T) {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	must(t, s.SaveVote(7, 2))
	must(t, s.SaveVote(8, 3))
	disk = disk.Crash(lose)
	var count flips
	flipAll(t, disk, "vote", share(), &count, func(bit int, _ *storage.Store, rec storage.Recovered) bool {
		if rec.HardState.Term != 8 || rec.HardState.Vote != 3 {
			t.Fatalf("bit %d: recovered %+v, the vote for 3 in term 8 had left", bit, rec.HardState)
		}
		return false
	})
	if count.detected != 0 {
		t.Errorf("%d single flips taken for damage though the other slot is good", count.detected)
	}
	for bit := range storage.SlotSize * 8 { // the same bit in both slots
		disk.Flip(dir+"/vote", bit)
		disk.Flip(dir+"/vote", storage.SlotStride*8+bit)
		if _, _, err := storage.Open(writesNothing(t, disk), dir, options); !errors.Is(err, storage.ErrDamaged) {
			t.Fatalf("bit %d in both slots: %v, want damage", bit, err)
		}
		disk.Flip(dir+"/vote", bit)
		disk.Flip(dir+"/vote", storage.SlotStride*8+bit)
	}
	t.Logf("one bit in %d: %d flips in one slot, vote kept; %d in both, damage", share(), count.harmless, storage.SlotSize*8)
}

// Promise: "Newest vote slot flipped looks torn; the older vote allows a second
// vote in that term." Cut short between the slots, either vote may stand, since
// none had left; but never an unreadable file.
func TestFlipAfterVoteCutShort(t *testing.T) {
	disk, syncs, stop := simdisk.New(), 0, 0
	s, _ := mustOpen(t, &simdisk.Faults{FS: disk, Check: func(op simdisk.Op) error {
		if op.Kind == "sync" {
			if syncs++; stop > 0 && syncs >= stop {
				return simdisk.ErrPower
			}
		}
		return nil
	}})
	must(t, s.SaveVote(7, 2))
	stop = syncs + 2 // the first slot gets its sync, the second one does not
	if err := s.SaveVote(8, 3); !errors.Is(err, simdisk.ErrPower) {
		t.Fatalf("vote: %v, want the power cut", err)
	}
	var count flips
	flipAll(t, disk.Crash(lose), "vote", share(), &count, func(bit int, _ *storage.Store, rec storage.Recovered) bool {
		got := [2]uint64{rec.HardState.Term, rec.HardState.Vote}
		if got != [2]uint64{7, 2} && got != [2]uint64{8, 3} {
			t.Fatalf("bit %d: recovered %v", bit, got)
		}
		return got[0] == 7
	})
	if count.detected != 0 || count.torn == 0 {
		t.Errorf("%+v", count)
	}
}

// Promise: a flipped identity is never taken for another directory or version.
func TestFlipEveryBitOfIdentity(t *testing.T) {
	disk := simdisk.New()
	s, _ := mustOpen(t, disk)
	must(t, s.Close())
	var count flips
	flipAll(t, disk, "identity", 1, &count, func(bit int, _ *storage.Store, _ storage.Recovered) bool {
		t.Fatalf("bit %d: opened", bit)
		return false
	})
	if count.detected != disk.Bytes(dir+"/identity")*8 {
		t.Errorf("%+v", count)
	}
}

// Promise: damage found at the start leaves the directory as it is, and Verify
// names the same file and offset.
func TestDamageChangesNothing(t *testing.T) {
	disk, _ := twoHundred(t)
	disk = disk.Crash(lose)
	name := segments(disk)[1]
	disk.Flip(dir+"/"+name, (storage.SegmentHeader+5*104+90)*8)
	_, _, err := storage.Open(writesNothing(t, disk), dir, options)
	damage, ok := errors.AsType[*storage.Error](err)
	if !ok || damage.File != dir+"/"+name || damage.Offset != storage.SegmentHeader+5*104 || damage.Advice == "" {
		t.Fatalf("error is %v", err)
	}
	report, err := storage.Verify(writesNothing(t, disk), dir)
	if err != nil || !report.Damaged() {
		t.Fatalf("verify: %v, %v", report.Findings, err)
	}
	found := report.Findings[0]
	if found.File != name || found.Offset != damage.Offset || found.Kind != storage.BadRecord {
		t.Errorf("verify says %v, open says %v", found, err)
	}
}
