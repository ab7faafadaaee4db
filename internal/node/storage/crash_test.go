package storage_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// cutAt lets the power fail before the n-th operation that writes.
func cutAt(fs storage.FS, n int) (*simdisk.Faults, *int) {
	writes := new(int)
	return &simdisk.Faults{FS: fs, Check: func(op simdisk.Op) error {
		if op.Writes() {
			*writes++
		}
		if *writes >= n {
			return simdisk.ErrPower
		}
		return nil
	}}, writes
}

// wrecks yields what a power cut may leave of disk: everything, nothing, each
// unsynced sector or name alone kept and alone lost, and some random mixtures;
// every mixture when they are few.
func wrecks(disk *simdisk.Disk, rng *rand.Rand, mixtures int) iter.Seq[*simdisk.Disk] {
	choices := 0
	disk.Crash(func(int) int { choices++; return 0 })
	return func(yield func(*simdisk.Disk) bool) {
		if choices <= 3 {
			for mask := range 1 << choices {
				if !yield(disk.Crash(pick(func(i int) bool { return mask>>i&1 == 1 }))) {
					return
				}
			}
			return
		}
		ok := yield(disk.Crash(keep)) && yield(disk.Crash(lose))
		for k := 0; ok && k < choices; k++ {
			ok = yield(disk.Crash(pick(func(i int) bool { return i == k }))) &&
				yield(disk.Crash(pick(func(i int) bool { return i != k })))
		}
		for k := 0; ok && k < mixtures; k++ {
			ok = yield(disk.Crash(rng.IntN))
		}
	}
}

func pick(kept func(i int) bool) func(int) int {
	i := -1
	return func(int) int {
		if i++; kept(i) {
			return 1
		}
		return 0
	}
}

// survives opens a wreck, compares it with what was acknowledged, goes on
// writing, and finds that too after the next start.
func (p progress) survives(wreck *simdisk.Disk) error {
	s, rec, err := storage.Open(wreck, dir, options)
	if err != nil {
		return err
	}
	if err := p.allowed(s, rec); err != nil {
		return err
	}
	last, _ := s.LastIndex()
	term := max(rec.HardState.Term, 1)
	if err := s.Append(storage.Batch{HardState: hard(term, rec.HardState.Vote, rec.HardState.Commit), Entries: entries(last+1, last+2, term, 600)}); err != nil {
		return err
	}
	wreck = wreck.Crash(lose)
	s, rec, err = storage.Open(wreck, dir, options)
	if err != nil {
		return fmt.Errorf("second start: %w", err)
	}
	if rec.Last != last+2 {
		return fmt.Errorf("second start: log ends at %d, want %d", rec.Last, last+2)
	}
	if err := s.Close(); err != nil {
		return err
	}
	report, err := storage.Verify(wreck, dir)
	if err == nil && report.Damaged() {
		err = fmt.Errorf("verify: %v", report.Findings)
	}
	return err
}

// Promise: an ordinary crash loses nothing acknowledged and is never taken for
// damage, wherever it happens and whatever of the unsynced writes it keeps.
func TestCrashAtEveryWrite(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	mixtures, step, starts := effort(30, 600, 5), effort(1, 1, 7), 0
	n := 1
	for ; ; n += step {
		disk := simdisk.New()
		fs, writes := cutAt(disk, n)
		p := play(fs, history(disk))
		if p.err == nil && *writes < n {
			break
		}
		if p.err != nil && !errors.Is(p.err, simdisk.ErrPower) {
			t.Fatalf("cut %d in %q: %v", n, p.step, p.err)
		}
		for wreck := range wrecks(disk, rng, mixtures) {
			starts++
			if err := p.survives(wreck); err != nil {
				t.Fatalf("cut %d in %q, wreck %d: %v", n, p.step, starts, err)
			}
		}
	}
	t.Logf("%d writes, power cut before one in %d of them, %d starts", n-1, step, starts)
}

// Promise: a crash during recovery is as harmless as any other.
func TestCrashDuringRecovery(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	step, starts := effort(2, 1, 23), 0
	for n := 1; ; n += step {
		disk := simdisk.New()
		fs, writes := cutAt(disk, n)
		p := play(fs, history(disk))
		if p.err == nil && *writes < n {
			break
		}
		first := disk.Crash(rng.IntN)
		for m := 1; ; m++ { // every write of the recovery
			wreck := first.Clone()
			fs, writes := cutAt(wreck, m)
			_, _, err := storage.Open(fs, dir, options)
			if err == nil && *writes < m {
				break
			}
			if !errors.Is(err, simdisk.ErrPower) {
				t.Fatalf("cut %d in %q, then %d: %v", n, p.step, m, err)
			}
			for again := range wrecks(wreck, rng, 2) {
				starts++
				if err := p.survives(again); err != nil {
					t.Fatalf("cut %d in %q, then %d: %v", n, p.step, m, err)
				}
			}
		}
	}
	t.Logf("%d starts after crashes during recovery from one in %d crashes", starts, step)
}

// Promise: "page 2 of an unsynced batch lands, page 1 does not; an ordinary crash
// must not read as damage." Every subset of the sectors of one large batch.
func TestCrashReordersPagesOfBatch(t *testing.T) {
	disk, cut := simdisk.New(), false
	s, _ := mustOpen(t, &simdisk.Faults{FS: disk, Check: func(op simdisk.Op) error {
		if cut && op.Kind == "sync" {
			return simdisk.ErrPower
		}
		return nil
	}})
	must(t, s.Append(storage.Batch{HardState: hard(1, 0, 0), Entries: entries(1, 3, 1, 100)}))
	cut = true
	if err := s.Append(storage.Batch{Entries: entries(4, 9, 1, 350)}); !errors.Is(err, simdisk.ErrPower) {
		t.Fatalf("append: %v, want the power cut", err)
	}
	choices := 0
	disk.Crash(func(int) int { choices++; return 0 })
	if choices < 5 || choices > 12 {
		t.Fatalf("%d sectors in flight, want a handful", choices)
	}
	whole := 0
	for mask := range 1 << choices {
		wreck := disk.Crash(pick(func(i int) bool { return mask>>i&1 == 1 }))
		_, rec, err := storage.Open(wreck, dir, options)
		if err != nil || rec.Last != 3 && rec.Last != 9 {
			t.Fatalf("sectors %b: log ends at %d, %v", mask, rec.Last, err)
		}
		if rec.Last == 9 {
			whole++
		}
	}
	if whole == 0 {
		t.Error("the whole batch was never found, even with every sector kept")
	}
	t.Logf("%d subsets of %d sectors", 1<<choices, choices)
}

// Promise: what a start has reported as recovered is durable, even if it was read
// from pages that a failed sync had left behind.
func TestFailedSyncThenPowerCut(t *testing.T) {
	eio := errors.New("input/output error")
	for n := 1; ; n++ {
		disk := simdisk.New()
		syncs := 0
		fs := &simdisk.Faults{FS: disk, Check: func(op simdisk.Op) error {
			if op.Kind == "sync" || op.Kind == "sync directory" {
				if syncs++; syncs == n {
					return eio
				}
			}
			return nil
		}}
		p := play(fs, history(disk))
		if p.err == nil && syncs < n {
			t.Logf("%d syncs failed, one by one", n-1)
			return
		}
		if p.err != nil && !errors.Is(p.err, eio) {
			t.Fatalf("sync %d in %q: %v", n, p.step, p.err)
		}
		s, rec, err := storage.Open(disk, dir, options)
		if err != nil {
			t.Fatalf("sync %d in %q: %v", n, p.step, err)
		}
		if err := p.allowed(s, rec); err != nil {
			t.Fatalf("sync %d in %q: %v", n, p.step, err)
		}
		_, again, err := storage.Open(disk.Crash(lose), dir, options)
		if err != nil || again.HardState != rec.HardState || again.Last != rec.Last || again.First != rec.First || again.Snapshot.Index != rec.Snapshot.Index {
			t.Fatalf("sync %d in %q: recovered %+v, after the power cut %+v, %v", n, p.step, rec, again, err)
		}
	}
}

// Promise: bytes of a client never pass for records. Here they are headers of
// later records in their exact places, right in all but the salt, and all that a
// power cut leaves of a batch.
func TestForgedPayload(t *testing.T) {
	for _, known := range []bool{false, true} {
		salt := options.Salt
		if !known {
			salt++
		}
		disk, cut := simdisk.New(), false
		s, _ := mustOpen(t, &simdisk.Faults{FS: disk, Check: func(op simdisk.Op) error {
			if cut && op.Kind == "sync" {
				return simdisk.ErrPower
			}
			return nil
		}})
		must(t, s.Append(storage.Batch{Entries: entries(1, 1, 1, 8)}))
		const at = storage.SegmentHeader + 104 + storage.RecordHeader + 16
		var data []byte
		for len(data) < 2000 {
			data = append(data, storage.ForgeHeader(9, storage.Seed(salt, 1, int64(at+len(data))))...)
		}
		cut = true
		if err := s.Append(storage.Batch{Entries: []storage.Entry{{Index: 2, Term: 1, Data: data}}}); !errors.Is(err, simdisk.ErrPower) {
			t.Fatal(err)
		}
		wreck := disk.Crash(pick(func(i int) bool { return i > 0 })) // the sector with the header is lost
		_, _, err := storage.Open(wreck, dir, options)
		if known != errors.Is(err, storage.ErrDamaged) || !known && err != nil {
			t.Errorf("salt known %v: %v", known, err)
		}
	}
}
