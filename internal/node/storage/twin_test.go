package storage_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// full runs whole enumerations where the default runs a stated share.
var full = flag.Bool("storage.full", false, "enumerate everything instead of a share")

// effort picks the size of an enumeration: by default, with -storage.full, and
// under the race detector.
func effort(normal, whole, race int) int {
	switch {
	case *full:
		return whole
	case racing:
		return race
	}
	return normal
}

const dir = "data"

// options make everything happen soon: small segments, hardly any cache.
var options = storage.Options{ClusterID: 0xc1, NodeID: 1, Group: 3, Salt: 0x5a17, SegmentSize: 4096, CacheBytes: 300}

// twin is the naive model of a store: plain slices, no files.
type twin struct {
	hs      storage.HardState
	durable uint64 // the commit that a record has carried
	base    storage.Point
	entries []storage.Entry
	snap    storage.SnapshotMeta
}

func (w *twin) clone() *twin {
	c := *w
	c.entries = slices.Clone(w.entries)
	return &c
}

func (w *twin) last() uint64 { return w.base.Index + uint64(len(w.entries)) }

func (w *twin) term(index uint64) uint64 {
	if index == w.base.Index {
		return w.base.Term
	}
	return w.entries[index-w.base.Index-1].Term
}

func (w *twin) append(b storage.Batch) {
	if b.HardState != (storage.HardState{}) {
		w.hs = b.HardState
	}
	if len(b.Entries) > 0 {
		w.entries = append(slices.Clone(w.entries[:b.Entries[0].Index-w.base.Index-1]), b.Entries...)
		w.durable = w.hs.Commit
	}
}

func (w *twin) install(meta storage.SnapshotMeta, b storage.Batch) {
	w.base, w.entries, w.snap = meta.Point(), nil, meta
	w.append(b)
	w.hs.Commit = max(w.hs.Commit, meta.Index)
	w.durable = w.hs.Commit
}

func (w *twin) compact(index uint64) {
	if index > w.base.Index {
		term := w.term(index)
		w.entries = slices.Clone(w.entries[index-w.base.Index:])
		w.base = storage.Point{Index: index, Term: term}
		w.durable = w.hs.Commit
	}
}

// restart is what a crash may do to the model: nothing but lower the commit.
func (w *twin) restart(rec storage.Recovered) { w.hs.Commit = rec.HardState.Commit }

// body is the content that a snapshot at index has in all tests.
func body(index uint64) []byte {
	b := make([]byte, 100+index%900)
	for i := range b {
		b[i] = byte(index) + byte(i*7)
	}
	return b
}

func meta(index, term uint64) storage.SnapshotMeta {
	return storage.SnapshotMeta{Index: index, Term: term, Conf: fmt.Appendf(nil, "members at %d", index)}
}

// entry makes an entry whose data tells index, term and size apart.
func entry(index, term uint64, size int) storage.Entry {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(index*31 + term*17 + uint64(i))
	}
	return storage.Entry{Index: index, Term: term, Type: uint8(index % 5), Data: data}
}

func entries(from, to, term uint64, size int) []storage.Entry {
	var out []storage.Entry
	for i := from; i <= to; i++ {
		out = append(out, entry(i, term, size))
	}
	return out
}

// sameLog compares the log of a store with the model, entry by entry.
func (w *twin) sameLog(s *storage.Store) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	if first != w.base.Index+1 || last != w.last() {
		return fmt.Errorf("log is %d..%d, want %d..%d", first, last, w.base.Index+1, w.last())
	}
	for i := w.base.Index; i <= last; i++ {
		if term, err := s.Term(i); err != nil || term != w.term(i) {
			return fmt.Errorf("term of %d is %d (%v), want %d", i, term, err, w.term(i))
		}
	}
	next := first
	for e, err := range s.Replay(first) {
		if err != nil {
			return err
		}
		if err := sameEntry(e, w.entries[next-first]); err != nil {
			return err
		}
		next++
	}
	if next != last+1 {
		return fmt.Errorf("replay ended at %d, want %d", next-1, last)
	}
	return nil
}

func sameEntry(got, want storage.Entry) error {
	if got.Index != want.Index || got.Term != want.Term || got.Type != want.Type || !bytes.Equal(got.Data, want.Data) {
		return fmt.Errorf("entry %d/%d type %d %x, want %d/%d type %d %x",
			got.Index, got.Term, got.Type, got.Data, want.Index, want.Term, want.Type, want.Data)
	}
	return nil
}

// sameSnapshot reads the newest snapshot and compares it with the model.
func (w *twin) sameSnapshot(s *storage.Store) error {
	got, err := s.Snapshot()
	if err != nil {
		return err
	}
	if got.Index != w.snap.Index || got.Term != w.snap.Term || !bytes.Equal(got.Conf, w.snap.Conf) {
		return fmt.Errorf("snapshot is %+v, want %+v", got, w.snap)
	}
	if got.Index == 0 {
		return nil
	}
	return readSnapshot(s, got.Index)
}

func readSnapshot(s *storage.Store, index uint64) error {
	r, err := s.OpenSnapshot(index)
	if err != nil {
		return err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err == nil && !bytes.Equal(data, body(index)) {
		err = errors.New("snapshot has another body")
	}
	return err
}

// same compares everything after an orderly step.
func (w *twin) same(s *storage.Store) error {
	hs, err := s.HardState()
	if err != nil {
		return err
	}
	if hs != w.hs {
		return fmt.Errorf("hard state is %+v, want %+v", hs, w.hs)
	}
	return errors.Join(w.sameLog(s), w.sameSnapshot(s))
}

// writeSnapshot streams body(meta.Index) in uneven pieces.
func writeSnapshot(s *storage.Store, m storage.SnapshotMeta) (*storage.SnapshotWriter, error) {
	w, err := s.NewSnapshot(m)
	if err != nil {
		return nil, err
	}
	for piece := range slices.Chunk(body(m.Index), 61) {
		if _, err := w.Write(piece); err != nil {
			return w, err
		}
	}
	return w, nil
}

func create(s *storage.Store, m storage.SnapshotMeta) error {
	w, err := writeSnapshot(s, m)
	if err != nil {
		return err
	}
	return s.CreateSnapshot(w)
}

func install(s *storage.Store, m storage.SnapshotMeta, b storage.Batch) error {
	w, err := writeSnapshot(s, m)
	if err != nil {
		return err
	}
	return s.InstallSnapshot(w, b)
}

func mustOpen(t testing.TB, fs storage.FS) (*storage.Store, storage.Recovered) {
	t.Helper()
	s, rec, err := storage.Open(fs, dir, options)
	if err != nil {
		t.Fatal(err)
	}
	return s, rec
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// keep and lose are the two ends of what a crash may do.
func keep(int) int { return 1 }
func lose(int) int { return 0 }
