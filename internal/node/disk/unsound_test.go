package disk_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// rewrite puts another snapshot in the place of the k-th newest of the old directory, under a checksum that is right.
func rewrite(t testing.TB, files *simdisk.Disk, k int, change func(m *storage.SnapshotMeta, body []byte) []byte) {
	t.Helper()
	s, _, err := storage.Open(files, "old", options)
	must(t, err)
	meta := s.Bases()[k]
	r, err := s.OpenSnapshot(meta.Index)
	must(t, err)
	body, err := io.ReadAll(r)
	must(t, errors.Join(err, r.Close()))
	other := storage.SnapshotMeta{Index: meta.Index, Term: meta.Term, Conf: slices.Clone(meta.Conf)}
	body = change(&other, body)
	w, err := s.NewSnapshot(other)
	must(t, err)
	_, err = w.Write(body)
	must(t, errors.Join(err, s.CreateSnapshot(w), s.Close()))
}

// unsound are ways in which a snapshot with a checksum that is right makes no state.
var unsound = map[string]func(m *storage.SnapshotMeta, body []byte) []byte{
	"chunk":      func(_ *storage.SnapshotMeta, b []byte) []byte { b[len(b)/2] ^= 1; return b },
	"length":     func(_ *storage.SnapshotMeta, b []byte) []byte { return slices.Repeat([]byte{0xff}, len(b)) },
	"end":        func(_ *storage.SnapshotMeta, b []byte) []byte { return b[:len(b)/2] },
	"nothing":    func(*storage.SnapshotMeta, []byte) []byte { return nil },
	"membership": func(m *storage.SnapshotMeta, b []byte) []byte { m.Conf = m.Conf[:len(m.Conf)-1]; return b },
	"no members": func(m *storage.SnapshotMeta, b []byte) []byte { m.Conf = nil; return b },
}

// opened is what an open of the old directory says.
func opened(files *simdisk.Disk) error {
	d, _, err := disk.Open(files, "old", options, replica.Joining(core.Config{}))
	if err == nil {
		err = d.Close()
	}
	return err
}

// Promise: "for the newest snapshot the one before it, with the log since then" stands in, also
// for one with a checksum that is right over content that makes no state.
func TestUnsoundSnapshot_OlderStandsIn(t *testing.T) {
	for name, change := range unsound {
		files := simdisk.New()
		counting(t, files)
		rewrite(t, files, 0, change)
		from, err := disk.Examine(files, "old", true)
		if err != nil || len(from.Findings) != 1 || from.Findings[0].Damage || from.Findings[0].Kind != storage.BadSnapshot {
			t.Errorf("%s: a check says %+v, %v", name, from, err)
		}
		if _, err := disk.AcceptLoss(files, "old", anew("new", 0)); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: nothing is lost, and the loss is accepted: %v", name, err)
		}
		for range 2 {
			n := run(t, files, "old", options)
			if n.orders() != 18 {
				t.Errorf("%s: orders are %d", name, n.orders())
			}
			must(t, n.disk.Close())
		}
	}
}

// Promise: a directory without a snapshot that makes a state is damaged, so that its node asks
// its group for another one; what an older snapshot has can be accepted as what is left.
func TestUnsoundSnapshot_NoneStandsIn(t *testing.T) {
	for name, change := range unsound {
		files := simdisk.New()
		counting(t, files)
		s, rec, err := storage.Open(files, "old", options)
		must(t, err)
		must(t, errors.Join(s.Compact(rec.Snapshot.Index), s.Close()))
		rewrite(t, files, 0, change)
		full, ok := errors.AsType[*storage.Error](opened(files))
		if !ok || !errors.Is(full, storage.ErrDamaged) || !strings.Contains(full.File, "old/snap-") || full.Advice == "" {
			t.Errorf("%s: a start says %v", name, full)
		}
		if _, err := disk.ForceNewCluster(files, "old", anew("forced", 0)); !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("%s: a new cluster: %v", name, err)
		}
		from, err := disk.AcceptLoss(files, "old", anew("new", 0))
		if err != nil || len(from.Findings) != 1 || !from.Findings[0].Damage || from.Index >= rec.Snapshot.Index {
			t.Errorf("%s: the loss is accepted from %+v, %v", name, from, err)
		}
	}
}

// With no snapshot at all that makes a state there is nothing to begin from.
func TestUnsoundSnapshot_All(t *testing.T) {
	files := simdisk.New()
	counting(t, files)
	rewrite(t, files, 1, unsound["chunk"])
	rewrite(t, files, 0, unsound["chunk"])
	if err := opened(files); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("a start says %v", err)
	}
	if _, err := disk.AcceptLoss(files, "old", anew("new", 0)); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("the loss is accepted: %v", err)
	}
	if err := verified(files); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("a check says %v", err)
	}
}

// A snapshot of a newer version is none that is damaged: neither is another taken in its place,
// nor is it said to be damaged, by which it would be moved aside.
func TestUnsoundSnapshot_NewerVersion(t *testing.T) {
	for name, change := range map[string]func(m *storage.SnapshotMeta, body []byte) []byte{
		"chunk":      func(_ *storage.SnapshotMeta, b []byte) []byte { b[slices.Index(b, 1)] = 99; return b },
		"membership": func(m *storage.SnapshotMeta, b []byte) []byte { m.Conf[0] = 99; return b },
	} {
		files := simdisk.New()
		counting(t, files)
		rewrite(t, files, 0, change)
		for _, err := range []error{opened(files), verified(files)} {
			if errors.Is(err, storage.ErrDamaged) || !errors.Is(err, core.ErrVersion) && !errors.Is(err, replica.ErrVersion) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A whole backup of a newer version is refused, says so, and nothing is written.
func TestRestoreRefuses_NewerVersion(t *testing.T) {
	files := simdisk.New()
	counting(t, files)
	rewrite(t, files, 0, func(_ *storage.SnapshotMeta, b []byte) []byte { b[slices.Index(b, 1)] = 99; return b })
	s, rec, err := storage.Open(files, "old", options)
	must(t, err)
	r, err := s.OpenSnapshot(rec.Snapshot.Index)
	must(t, err)
	var backup bytes.Buffer
	must(t, errors.Join(r.Save(&backup), r.Close(), s.Close()))
	put(t, files, "backups", "backups/newer", backup.Bytes())
	_, err = disk.Restore(files, "backups/newer", anew("new", 0))
	if !errors.Is(err, core.ErrVersion) || errors.Is(err, storage.ErrDamaged) || !strings.Contains(err.Error(), "backups/newer") || !strings.Contains(err.Error(), "99") {
		t.Errorf("it is refused with %v", err)
	}
	if _, err := disk.Examine(files, "backups/newer", false); !errors.Is(err, core.ErrVersion) {
		t.Errorf("a check says %v", err)
	}
	if _, err := files.List("new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the new directory was begun: %v", err)
	}
}
