package disk_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// arrives opens a copy of a directory at a time of the wall clock. If cut, it stops before the place is settled.
func arrives(t *testing.T, dir string, clock time.Time, cut bool) *node {
	t.Helper()
	d, rec, err := disk.Open(storage.OS{}, dir, options, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	must(t, err)
	if d.Copied() == nil {
		t.Fatal("the copy is not told from the original")
	}
	if cut {
		must(t, d.Write([]replica.Write{{Entries: append(rec.Entries[:0:0], rec.Fork(1, core.EntryVersion, clock))}}))
		must(t, d.Close())
		return nil
	}
	must(t, d.Settle(1, &rec, core.EntryVersion, clock))
	r, err := replica.New(replica.Config{ID: 1, SnapshotEntries: 10, Trailing: 5, Seconds: seconds}, rec)
	must(t, err)
	n := &node{t: t, disk: d, r: r, seq: 100}
	n.pump()
	return n
}

// TestFork: a copy of the directory of a node alone grants greater tokens than the original goes on to: beyond the clock of its
// start, or if the original is beyond that, 2⁴⁰ beyond its revision. What was held stays, also over the next start. A start that was
// cut short before the place was settled is done again.
func TestFork(t *testing.T) {
	begin := time.Unix(seconds, 0)
	for name, c := range map[string]struct {
		clock time.Time
		least uint64
	}{
		"a clock that is right":  {begin.Add(time.Hour), (seconds + 3600) << 20},
		"a clock that is behind": {begin.Add(-time.Hour), seconds<<20 + 1<<40},
	} {
		t.Run(name, func(t *testing.T) {
			dir, to := filepath.Join(t.TempDir(), "original"), filepath.Join(t.TempDir(), "copy")
			n := begun(t, storage.OS{}, dir, options, begin, seconds, replica.Endpoint{ID: 1})
			held := n.do(2, open(), lock()).Results[1].Token
			must(t, os.CopyFS(to, os.DirFS(dir)))
			arrives(t, to, c.clock, true)
			fork := arrives(t, to, c.clock, false)
			other := lock()
			other.Wants[0].Name = "other"
			token := fork.do(2, other).Results[0].Token
			if token < c.least || token > c.least+1<<41 {
				t.Errorf("the copy grants token %d, want one from %d on", token, c.least)
			}
			must(t, fork.disk.Close())
			again := run(t, storage.OS{}, to, options)
			if _, there := again.r.Machine().Holder("", "jobs", held); !there || again.disk.Copied() != nil {
				t.Errorf("after a restart the hold with token %d is there: %v, and it is a copy of %+v", held, there, again.disk.Copied())
			}
			if now := again.r.Status().Revision; now < token {
				t.Errorf("after a restart the revision is %d, after token %d", now, token)
			}
			must(t, again.disk.Close())
			must(t, n.disk.Close())
		})
	}
}
