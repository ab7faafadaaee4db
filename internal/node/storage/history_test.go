package storage_test

import (
	"fmt"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// step is one call of a history, and what it does to the model.
type step struct {
	name  string
	run   func(*storage.Store) error
	model func(*twin)
}

func appendStep(b storage.Batch) step {
	return step{
		fmt.Sprintf("append %+v, %d entries", b.HardState, len(b.Entries)),
		func(s *storage.Store) error { return s.Append(b) },
		func(w *twin) { w.append(b) },
	}
}

func voteStep(term, vote uint64) step {
	return step{
		fmt.Sprintf("vote %d in %d", vote, term),
		func(s *storage.Store) error { return s.SaveVote(term, vote) },
		func(w *twin) { w.hs.Term, w.hs.Vote = term, vote },
	}
}

func snapStep(index, term uint64) step {
	m := meta(index, term)
	return step{
		fmt.Sprintf("snapshot %d", index),
		func(s *storage.Store) error { return create(s, m) },
		func(w *twin) { w.snap = m },
	}
}

func installStep(index, term uint64, b storage.Batch) step {
	m := meta(index, term)
	return step{
		fmt.Sprintf("install %d", index),
		func(s *storage.Store) error { return install(s, m, b) },
		func(w *twin) { w.install(m, b) },
	}
}

func compactStep(index uint64) step {
	return step{
		fmt.Sprintf("compact %d", index),
		func(s *storage.Store) error { return s.Compact(index) },
		func(w *twin) { w.compact(index) },
	}
}

func hard(term, vote, commit uint64) storage.HardState {
	return storage.HardState{Term: term, Vote: vote, Commit: commit}
}

// spoof makes entries whose data is a copy of the log itself, at every offset
// that a record could have: bytes of a client that look like valid records.
func spoof(disk *simdisk.Disk, index, term uint64) []storage.Entry {
	names, _ := disk.List(dir)
	var data []byte
	for _, name := range names {
		if len(name) == 20 && name[:4] == "log-" {
			data = disk.Read(dir + "/" + name)
		}
	}
	return []storage.Entry{{Index: index, Term: term, Data: data[:min(len(data), 1500)]}}
}

// history goes through everything a store can do: appends small and large,
// truncations within and across segments, votes, snapshots, resets, compaction,
// recycling, oversize records. nil in the list means: close and open again.
func history(disk *simdisk.Disk) []*step {
	var out []*step
	add := func(steps ...step) {
		for i := range steps {
			out = append(out, &steps[i])
		}
	}
	reopen := func() { out = append(out, nil) }

	add(installStep(1, 1, storage.Batch{HardState: hard(1, 0, 1)}))
	add(voteStep(2, 1), appendStep(storage.Batch{Entries: entries(2, 4, 2, 10)}))
	add(appendStep(storage.Batch{HardState: hard(2, 1, 3)})) // commit only: kept in memory
	add(appendStep(storage.Batch{HardState: hard(2, 1, 4), Entries: entries(5, 9, 2, 300)}))
	add(appendStep(storage.Batch{HardState: hard(3, 0, 4), Entries: entries(6, 7, 3, 20)})) // cuts 8, 9
	reopen()
	add(appendStep(storage.Batch{Entries: entries(8, 8, 3, 5000)})) // larger than a segment; recycled later
	for i := uint64(9); i < 20; i++ {                               // over segments, several sectors each
		add(appendStep(storage.Batch{HardState: hard(3, 0, i-1), Entries: entries(i, i, 3, 700)}))
	}
	add(step{"append what looks like a log", func(s *storage.Store) error {
		return s.Append(storage.Batch{Entries: spoof(disk, 20, 3)})
	}, func(w *twin) { w.append(storage.Batch{Entries: spoof(disk, 20, 3)}) }})
	add(appendStep(storage.Batch{HardState: hard(4, 2, 18), Entries: entries(19, 22, 4, 40)})) // cuts across segments
	add(snapStep(10, 3), snapStep(15, 3), compactStep(12), snapStep(18, 3), compactStep(18))
	add(voteStep(5, 0), voteStep(5, 3))
	reopen()
	for i := uint64(23); i < 31; i++ { // into recycled segments
		add(appendStep(storage.Batch{HardState: hard(5, 3, i-1), Entries: entries(i, i, 5, 700)}))
	}
	add(appendStep(storage.Batch{Entries: entries(31, 31, 5, 6000)})) // larger than a segment
	add(appendStep(storage.Batch{HardState: hard(6, 0, 30), Entries: entries(31, 40, 6, 12)}))
	add(snapStep(35, 6), compactStep(35))
	add(installStep(100, 7, storage.Batch{HardState: hard(7, 0, 100)})) // far ahead: everything is replaced
	add(appendStep(storage.Batch{HardState: hard(7, 0, 100), Entries: entries(101, 110, 7, 30)}))
	reopen()
	add(installStep(105, 8, storage.Batch{HardState: hard(8, 0, 105), Entries: entries(106, 107, 8, 5)})) // kills a stale suffix
	for i := uint64(108); i < 116; i++ {
		add(appendStep(storage.Batch{HardState: hard(8, 0, i-1), Entries: entries(i, i, 8, 900)}))
	}
	add(step{"mark", (*storage.Store).Mark, func(*twin) {}})
	add(snapStep(112, 8), compactStep(112))
	for i := uint64(116); i < 126; i++ { // at once into what compaction has freed
		add(appendStep(storage.Batch{HardState: hard(8, 0, i-1), Entries: entries(i, i, 8, 900)}))
	}
	return out
}

// progress is how far a history came before something stopped it.
type progress struct {
	before, after *twin // around the step that was under way
	step          string
	err           error
}

// play runs a history on fs until its end or the first error. Everything before
// that was acknowledged.
func play(fs storage.FS, steps []*step) (p progress) {
	w := &twin{}
	p = progress{before: w, after: w, step: "open"}
	s, _, err := storage.Open(fs, dir, options)
	if p.err = err; err != nil {
		return p
	}
	defer func() {
		if err := s.Close(); p.err == nil {
			p.step, p.err = "close", err
		}
	}()
	for _, st := range steps {
		p.before, p.after = w, w.clone()
		if st == nil {
			p.step = "reopen"
			var rec storage.Recovered
			if s, rec, p.err = reopen(fs, s); p.err != nil {
				return p
			}
			p.after.restart(rec)
		} else {
			p.step = st.name
			st.model(p.after)
			if p.err = st.run(s); p.err != nil {
				return p
			}
		}
		w = p.after
	}
	p.before, p.err = w, p.after.same(s)
	return p
}

func reopen(fs storage.FS, s *storage.Store) (*storage.Store, storage.Recovered, error) {
	if err := s.Close(); err != nil {
		return s, storage.Recovered{}, err
	}
	again, rec, err := storage.Open(fs, dir, options)
	if err != nil {
		return s, rec, err
	}
	return again, rec, nil
}

// allowed reports whether a recovered store is what the acknowledged steps made
// of it, with the step under way done, not done, or its vote alone done.
func (p progress) allowed(s *storage.Store, rec storage.Recovered) error {
	vote := func(w *twin) [2]uint64 { return [2]uint64{w.hs.Term, w.hs.Vote} }
	got := [2]uint64{rec.HardState.Term, rec.HardState.Vote}
	if got != vote(p.before) && got != vote(p.after) {
		return fmt.Errorf("vote is %v, want %v or %v", got, vote(p.before), vote(p.after))
	}
	log := p.before
	if errBefore := p.before.sameLog(s); errBefore != nil {
		if errAfter := p.after.sameLog(s); errAfter != nil {
			return fmt.Errorf("log is neither the one before: %v, nor the one after: %v", errBefore, errAfter)
		}
		if log = p.after; got != vote(p.after) {
			return fmt.Errorf("log of the step without its vote %v", vote(p.after))
		}
	}
	if errBefore := p.before.sameSnapshot(s); errBefore != nil {
		if errAfter := p.after.sameSnapshot(s); errAfter != nil {
			return fmt.Errorf("snapshot is neither the one before: %v, nor the one after: %v", errBefore, errAfter)
		}
	}
	low := max(log.durable, rec.Snapshot.Index)
	if c := rec.HardState.Commit; c < low || c > max(p.after.hs.Commit, rec.Snapshot.Index) {
		return fmt.Errorf("commit is %d, want %d..%d", c, low, p.after.hs.Commit)
	}
	return nil
}
