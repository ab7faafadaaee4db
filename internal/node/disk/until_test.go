package disk_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// counting runs a node that counts to 18, the last eight after its snapshot, and returns
// the revision of each count.
func counting(t testing.TB, files *simdisk.Disk) (revisions []uint64) {
	t.Helper()
	n := run(t, files, "old", options, replica.Endpoint{ID: 1})
	n.do(1, open())
	for i := range 18 {
		if n.do(1, add()); i == 9 {
			n.r.WantSnapshot(n.now)
			n.pump()
		}
		revisions = append(revisions, n.r.Machine().Revision())
	}
	must(t, n.disk.Close())
	return revisions
}

// A revision before the first, such as the number of a log entry taken for one, is refused: it
// would restore nothing.
func TestRestoreUntilBeforeAll(t *testing.T) {
	files := simdisk.New()
	n := begun(t, files, "old", options, time.Unix(0, 0), 1_794_830_400, replica.Endpoint{ID: 1})
	n.do(1, open())
	n.do(1, add())
	must(t, n.disk.Close())
	s := anew("early", 0)
	s.Until = 12
	if from, err := disk.RestoreUntil(files, "old", s); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "so that nothing would be restored: name a revision from ") {
		t.Errorf("revision 12: %+v, %v", from, err)
	}
	if names, err := files.List("early"); err == nil && len(names) > 0 {
		t.Errorf("it has made %v", names)
	}
}

// Promise: what comes after the revision is left out, and nothing before it; the old
// directory is not changed.
func TestRestoreUntil(t *testing.T) {
	files := simdisk.New()
	revisions := counting(t, files)
	for count := uint64(10); count <= 18; count++ {
		s := anew("new"+string(rune('a'+count)), 0)
		s.Until = revisions[count-1]
		from, err := disk.RestoreUntil(files, "old", s)
		must(t, err)
		n := run(t, files, s.Dir, s.Options)
		if n.orders() != count || from.Revision != s.Until {
			t.Errorf("until revision %d: orders are %d, want %d; it began from %+v", s.Until, n.orders(), count, from)
		}
		must(t, n.disk.Close())
	}
	s := anew("early", 0)
	s.Until = revisions[3]
	if _, err := disk.RestoreUntil(files, "old", s); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "restore a backup from before") {
		t.Errorf("a revision from before the snapshot: %v", err)
	}
	if names, err := files.List("early"); err == nil && len(names) > 0 {
		t.Errorf("it has made %v", names)
	}
	n := run(t, files, "old", options)
	if n.orders() != 18 {
		t.Errorf("the old directory has %d orders", n.orders())
	}
}

// A revision beyond the last means all of the log.
func TestRestoreUntilBeyondAll(t *testing.T) {
	files := simdisk.New()
	revisions := counting(t, files)
	last := revisions[len(revisions)-1]
	for _, until := range []uint64{last + 1, last + 1<<40} {
		s := anew(fmt.Sprint("new", until), 0)
		s.Until = until
		from, err := disk.RestoreUntil(files, "old", s)
		must(t, err)
		n := run(t, files, s.Dir, s.Options)
		if n.orders() != 18 || from.Revision != last {
			t.Errorf("until revision %d: orders are %d, want 18; it began from %+v, and the last is %d", until, n.orders(), from, last)
		}
		must(t, n.disk.Close())
	}
}

// Promise: a snapshot that was made after what counts, as every backup makes one, does not keep
// the state from being restored: it begins from the one before if the log goes on from that,
// and so it does if the newest cannot be read. By a time as by a revision.
func TestRestoreUntilBeforeTheNewestSnapshot(t *testing.T) {
	const noon = 1_794_830_400
	files := simdisk.New()
	n := run(t, files, "old", options, replica.Endpoint{ID: 1})
	n.do(1, open())
	revisions := map[uint64]uint64{}
	for count := uint64(1); count <= 13; count++ {
		n.r.Date(noon + 60*int64(count))
		if n.do(1, add()); count == 10 || count == 13 {
			n.r.WantSnapshot(n.now)
			n.pump()
		}
		revisions[count] = n.r.Machine().Revision()
	}
	must(t, n.disk.Close())
	restored := func(newest string, count uint64, date int64) {
		s := anew(fmt.Sprint(newest, count, date), 0)
		if s.UntilDate = date; date == 0 {
			s.Until = revisions[count]
		}
		from, err := disk.RestoreUntil(files, "old", s)
		must(t, err)
		n := run(t, files, s.Dir, s.Options)
		if n.orders() != count || from.Revision != revisions[count] {
			t.Errorf("%s: until count %d, date %d: orders are %d; it began from %+v", newest, count, date, n.orders(), from)
		}
		must(t, n.disk.Close())
	}
	for _, newest := range []string{"whole", "damaged"} {
		if newest == "damaged" {
			damageNewest(t, files)
		}
		for count := uint64(11); count <= 13; count++ {
			restored(newest, count, 0)
			restored(newest, count, noon+60*int64(count))
		}
		restored(newest, 10, 0)
		restored(newest, 10, noon+60*10)
	}
	s := anew("early", 0)
	s.Until = revisions[9]
	if _, err := disk.RestoreUntil(files, "old", s); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("name a revision from %d on", revisions[10])) {
		t.Errorf("a revision from before both: %v", err)
	}
	s.Until, s.UntilDate = 0, noon+60*10-1
	if _, err := disk.RestoreUntil(files, "old", s); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "is of 2026-11-16T12:10:00Z") {
		t.Errorf("a time from before both: %v", err)
	}
}

// A snapshot tells of when it is: without a command since the older of the two, a time to come means all of
// it, and one that is over before is refused for that.
func TestRestoreUntilDate_NoCommandSince(t *testing.T) {
	const noon = 1_794_830_400
	files := simdisk.New()
	n := run(t, files, "old", options, replica.Endpoint{ID: 1})
	n.r.Date(noon)
	n.do(1, open())
	n.do(1, add())
	for range 2 {
		n.ticks(20)
		n.r.WantSnapshot(n.now)
		n.pump()
	}
	must(t, n.disk.Close())
	s := anew("new", 0)
	s.UntilDate = noon + 3600
	from, err := disk.RestoreUntil(files, "old", s)
	must(t, err)
	if n := run(t, files, "new", s.Options); n.orders() != 1 {
		t.Errorf("orders are %d; it began from %+v", n.orders(), from)
	}
	s = anew("past", 0)
	s.UntilDate = noon - 60
	if _, err := disk.RestoreUntil(files, "old", s); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "restore a backup from before, or name a time from then on") {
		t.Errorf("a time from before: %v", err)
	}
}

// damageNewest flips a bit of the newest snapshot of the old directory.
func damageNewest(t testing.TB, files *simdisk.Disk) {
	t.Helper()
	names, err := files.List("old")
	must(t, err)
	names = slices.DeleteFunc(names, func(s string) bool { return !strings.HasPrefix(s, "snap-") })
	files.Flip("old/"+slices.Max(names), 8*600)
}

// unappliable adds an entry to the log of the old directory that cannot be applied.
func unappliable(t testing.TB, files *simdisk.Disk) (index uint64) {
	t.Helper()
	s, rec, err := storage.Open(files, "old", options)
	must(t, err)
	hs := rec.HardState
	hs.Commit = rec.Last + 1
	must(t, s.Append(storage.Batch{HardState: hs, Entries: []storage.Entry{{Index: rec.Last + 1, Term: hs.Term, Data: []byte{1, 1, 99}}}}))
	must(t, s.Close())
	return rec.Last + 1
}

// Promise: an entry that cannot be applied is found by a check, which says which it is and
// what to do, and a restore until the revision before it leads past it.
func TestRestorePastAnEntry(t *testing.T) {
	files := simdisk.New()
	revisions := counting(t, files)
	must(t, verified(files))
	index := unappliable(t, files)
	last := revisions[len(revisions)-1]
	err := verified(files)
	u, ok := errors.AsType[*replica.Unapplied](err)
	if !ok || u.Index != index || u.Revision < last || !strings.Contains(err.Error(), "--until") {
		t.Fatalf("the check says: %v", err)
	}
	s := anew("more", 0)
	s.Until = u.Revision + 1
	if _, err := disk.RestoreUntil(files, "old", s); !errors.As(err, &u) {
		t.Errorf("a revision behind the entry: %v", err)
	}
	s.Until = u.Revision
	from, err := disk.RestoreUntil(files, "old", s)
	must(t, err)
	if n := run(t, files, "more", s.Options); n.orders() != 18 || from.Index != index-1 {
		t.Errorf("orders are %d; it began from %+v", n.orders(), from)
	}
}

func verified(files *simdisk.Disk) error {
	_, err := disk.Examine(files, "old", true)
	return err
}

// Promise: a check of a backup restores it: one that is cut or flipped anywhere is refused.
func TestExamineBackup(t *testing.T) {
	files := simdisk.New()
	saved(t, files)
	from, err := disk.Examine(files, "backups/b", false)
	must(t, err)
	if from.ClusterID != 1 || from.Revision == 0 {
		t.Errorf("it is of %+v", from)
	}
	f, err := files.OpenRead("backups/b")
	must(t, err)
	size, err := f.Size()
	must(t, err)
	whole := make([]byte, size)
	_, err = f.ReadAt(whole, 0)
	must(t, err)
	for at := range whole {
		bad := append([]byte{}, whole...)
		bad[at] ^= 4
		put(t, files, "backups", "backups/flipped", bad)
		if _, err := disk.Examine(files, "backups/flipped", false); err == nil {
			t.Fatalf("a bit of byte %d is flipped, and nobody says so", at)
		}
		put(t, files, "backups", "backups/cut", whole[:at])
		if _, err := disk.Examine(files, "backups/cut", false); err == nil {
			t.Fatalf("it is cut after %d bytes, and nobody says so", at)
		}
		if _, err := disk.Restore(files, "backups/cut", anew("never", 0)); err == nil {
			t.Fatalf("it was restored from %d bytes", at)
		}
	}
	if names, _ := files.List("never"); len(names) > 0 {
		t.Errorf("a refused restore has made %v", names)
	}
}

// dated runs a node that counts to 18, one in each minute after noon, the last eight after
// its newest snapshot and eleven after the one before. Without noon it does not know the date.
func dated(t testing.TB, files *simdisk.Disk, noon int64) {
	t.Helper()
	n := run(t, files, "old", options, replica.Endpoint{ID: 1})
	n.do(1, open())
	for i := range 18 {
		if noon > 0 {
			n.r.Date(noon + 60*int64(i+1))
		}
		if n.do(1, add()); i == 9 {
			n.r.WantSnapshot(n.now)
			n.pump()
		}
	}
	must(t, n.disk.Close())
}

// Promise: what comes after a time is left out, and nothing before it. A time of which the
// log cannot tell what there was is refused.
func TestRestoreUntilDate(t *testing.T) {
	const noon = 1_794_830_400
	files := simdisk.New()
	dated(t, files, noon)
	restore := func(dir string, date int64) (disk.Origin, storage.Options, error) {
		s := anew(dir, 0)
		s.UntilDate = date
		from, err := disk.RestoreUntil(files, "old", s)
		return from, s.Options, err
	}
	for count := int64(7); count <= 18; count++ {
		for _, late := range []int64{0, 59} {
			dir := fmt.Sprint("new", count, late)
			from, o, err := restore(dir, noon+60*count+late)
			must(t, err)
			n := run(t, files, dir, o)
			if n.orders() != uint64(count) || from.Date != noon+60*count {
				t.Errorf("until %d minutes and %d seconds after noon: orders are %d; it began from %+v", count, late, n.orders(), from)
			}
			must(t, n.disk.Close())
		}
	}
	if _, _, err := restore("early", noon+60*7-1); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "is of 2026-11-16T12:07:00Z") {
		t.Errorf("a time that is not in the log: %v", err)
	}
	files = simdisk.New()
	dated(t, files, 0)
	if _, _, err := restore("plain", noon+60*12); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "tells its date") {
		t.Errorf("a log without dates: %v", err)
	}
}

// What passes without a command, and so has no date, is left out as well if it came after the
// time: a key that has ended since is there. What came before it is not undone.
func TestRestoreUntilDate_KeyEndsByItself(t *testing.T) {
	const noon = 1_794_830_400
	files := simdisk.New()
	n := run(t, files, "old", options, replica.Endpoint{ID: 1})
	n.r.Date(noon)
	n.do(1, open(), core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k", Expire: 5e9}}})
	n.ticks(100)
	must(t, n.disk.Close())
	for late, want := range map[int64]int{0: 1, 3: 1, 8: 0, 3600: 0} {
		s := anew(fmt.Sprint("new", late), 0)
		s.UntilDate = noon + late
		_, err := disk.RestoreUntil(files, "old", s)
		must(t, err)
		n := run(t, files, s.Dir, s.Options)
		got := n.do(2, open(), core.Command{Op: core.OpTxn, Then: []core.KeyOp{{Kind: core.KeyGet, Key: "k"}}}).Results[1]
		if len(got.Keys) != 1 || len(got.Keys[0].Keys) != want {
			t.Errorf("until %d seconds after it was put there are %+v, want %d keys", late, got.Keys, want)
		}
		must(t, n.disk.Close())
	}
}
