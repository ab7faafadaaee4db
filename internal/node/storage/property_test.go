package storage_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// walker makes random calls on a store and on its naive twin.
type walker struct {
	rng  *rand.Rand
	disk *simdisk.Disk
	s    *storage.Store
	w    *twin
}

func (k *walker) chance(percent int) bool { return k.rng.IntN(100) < percent }

// between returns a number from lo to hi, both included.
func (k *walker) between(lo, hi uint64) uint64 { return lo + k.rng.Uint64N(hi-lo+1) }

// batch makes one that raft could send: at or above the commit, terms growing.
func (k *walker) batch() storage.Batch {
	hs := k.w.hs
	if k.chance(15) || hs.Term == 0 {
		hs.Term, hs.Vote = hs.Term+1, k.rng.Uint64N(4)
	}
	b := storage.Batch{HardState: hs}
	if k.chance(90) {
		from := k.w.last() + 1
		if k.chance(20) {
			from = k.between(max(k.w.hs.Commit, k.w.base.Index)+1, k.w.last()+1)
		}
		for i := range k.between(1, 6) {
			b.Entries = append(b.Entries, entry(from+i, hs.Term, k.rng.IntN(k.size())))
		}
	}
	last := k.w.last()
	if n := len(b.Entries); n > 0 {
		last = b.Entries[n-1].Index
	}
	if k.chance(60) {
		b.HardState.Commit = k.between(hs.Commit, last)
	}
	return b
}

func (k *walker) size() int {
	if k.chance(5) {
		return 5000
	}
	return 200
}

// step makes one call and the same change to the twin.
func (k *walker) step() error {
	switch n := k.rng.IntN(100); {
	case n < 60:
		b := k.batch()
		k.w.append(b)
		return k.s.Append(b)
	case n < 70:
		k.w.hs.Term, k.w.hs.Vote = k.w.hs.Term+1, k.rng.Uint64N(4)
		return k.s.SaveVote(k.w.hs.Term, k.w.hs.Vote)
	case n < 78:
		return k.snapshot()
	case n < 84 && k.w.snap.Index > k.w.base.Index:
		index := k.between(k.w.base.Index+1, k.w.snap.Index)
		k.w.compact(index)
		return k.s.Compact(index)
	case n < 87:
		return k.install()
	case n < 90:
		return k.s.Mark()
	case n < 95:
		return k.restart(false)
	default:
		return k.restart(true)
	}
}

func (k *walker) snapshot() error {
	if k.w.hs.Commit == 0 || k.w.hs.Commit < k.w.snap.Index {
		return nil
	}
	index := k.between(max(k.w.snap.Index, k.w.base.Index, 1), k.w.hs.Commit)
	m := meta(index, k.w.term(index))
	k.w.snap = m
	return create(k.s, m)
}

func (k *walker) install() error {
	b := storage.Batch{HardState: k.w.hs}
	b.HardState.Term++
	b.HardState.Vote = 0
	m := meta(max(k.w.hs.Commit, k.w.base.Index)+k.between(1, 30), b.HardState.Term)
	if k.chance(30) {
		b.Entries = entries(m.Index+1, m.Index+2, b.HardState.Term, 10)
	}
	b.HardState.Commit = m.Index
	k.w.install(m, b)
	return install(k.s, m, b)
}

// restart closes or crashes, and opens again.
func (k *walker) restart(crash bool) error {
	if crash {
		k.disk = k.disk.Crash(k.rng.IntN)
	} else if err := k.s.Close(); err != nil {
		return err
	}
	s, rec, err := storage.Open(k.disk, dir, options)
	if err != nil {
		return err
	}
	if low := max(k.w.durable, k.w.snap.Index); rec.HardState.Commit < low || rec.HardState.Commit > k.w.hs.Commit {
		return fmt.Errorf("commit %d after the restart, want %d..%d", rec.HardState.Commit, low, k.w.hs.Commit)
	}
	k.s = s
	k.w.restart(rec)
	return nil
}

// Promise: whatever is called in whatever order, the store says what a plain
// slice would say, before and after restarts and crashes.
func TestAgainstNaiveTwin(t *testing.T) {
	for seed := range uint64(effort(120, 3000, 20)) {
		k := &walker{rng: rand.New(rand.NewPCG(seed, 11)), disk: simdisk.New(), w: &twin{}}
		k.s, _ = mustOpen(t, k.disk)
		for n := range 150 {
			if err := k.step(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, n, err)
			}
			if err := k.w.same(k.s); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, n, err)
			}
		}
		must(t, k.s.Close())
		if report, err := storage.Verify(k.disk, dir); err != nil || report.Damaged() {
			t.Fatalf("seed %d: %v, %v", seed, report.Findings, err)
		}
	}
}
