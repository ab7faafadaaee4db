package disk_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// Promise: "the one that starts later has the greater tokens", whichever was restored
// first, also within one second: three directories are made of one backup in the same
// second, and started in another order, milliseconds apart.
func TestRestoreTwice(t *testing.T) {
	files, last := simdisk.New(), uint64(0)
	saved(t, files)
	for i, dir := range []string{"first", "second", "third", "later"} {
		s := anew(dir, 0)
		s.Options.ClusterID = uint64(10 + i)
		s.Clock = s.Clock.Add(time.Duration(i) / 3 * 5 * time.Second) // the last one five seconds later
		_, err := disk.Restore(files, "backups/b", s)
		must(t, err)
	}
	begin := time.Unix(seconds+5, 0)
	for i, dir := range []string{"second", "later", "first", "third"} {
		o := anew(dir, 0).Options
		_, o.NodeID, _ = storage.Owner(files, dir)
		o.ClusterID, _, _ = storage.Owner(files, dir)
		n := runAt(t, files, dir, o, begin.Add(time.Duration(i+1)*time.Millisecond))
		token := n.do(2, open(), lock()).Results[1].Token
		if token <= last {
			t.Errorf("%s, which began after that, gives token %d after %d", dir, token, last)
		}
		last = token
		must(t, n.disk.Close())
	}
}

// Promise: the clock counts at the first start alone: a restart changes nothing, be the
// clock ahead or behind, and nor does the first start of a group that several have founded.
func TestRestoreBeginsOnce(t *testing.T) {
	files := simdisk.New()
	saved(t, files)
	_, err := disk.Restore(files, "backups/b", anew("new", 0))
	must(t, err)
	o, begin := anew("new", 0).Options, time.Unix(seconds+60, 0)
	n := runAt(t, files, "new", o, begin)
	if got := n.r.Status().Revision; got != (seconds+60)<<20 {
		t.Errorf("it began at revision %d, want %d", got, uint64((seconds+60)<<20))
	}
	revision := n.r.Status().Revision
	for _, clock := range []time.Time{begin.Add(time.Hour), begin.Add(-time.Hour)} {
		must(t, n.disk.Close())
		n = runAt(t, files, "new", o, clock)
		if got := n.r.Status().Revision; got != revision {
			t.Errorf("started again at %s: revision %d, was %d", clock, got, revision)
		}
	}
	if n := runAt(t, files, "empty", options, begin, replica.Endpoint{ID: 1}, replica.Endpoint{ID: 2}); n.r.Status().Revision != 0 {
		t.Errorf("a new group began at revision %d, before it is in the log", n.r.Status().Revision)
	}
}

// Promise: a group "that was wiped does not repeat its tokens": a node alone that is founded
// again milliseconds later gives greater ones; a start that is not the first changes nothing.
func TestFoundedAloneTwice(t *testing.T) {
	last := uint64(0)
	for i := range 3 {
		files, begin := simdisk.New(), time.Unix(seconds, 0).Add(time.Duration(i)*time.Millisecond)
		n := begun(t, files, "data", options, begin, seconds, replica.Endpoint{ID: 1})
		token := n.do(2, open(), lock()).Results[1].Token
		if token <= last {
			t.Errorf("founding %d gives token %d after %d", i, token, last)
		}
		last = token
		must(t, n.disk.Close())
		n = begun(t, files, "data", options, begin.Add(time.Hour), seconds+3600, replica.Endpoint{ID: 1})
		if got := n.r.Status().Revision; got < last || got > last+100 {
			t.Errorf("started again it stands at %d, after %d", got, last)
		}
		must(t, n.disk.Close())
	}
}

// Promise: a first start that is cut short leaves a state that a node starts from, and the
// next start takes the clock again: the power goes before every write of it.
func TestRestoreBeginCutShort(t *testing.T) {
	base := simdisk.New()
	saved(t, base)
	_, err := disk.Restore(base, "backups/b", anew("new", 0))
	must(t, err)
	for k, finished := 1, false; !finished; k++ {
		for _, keep := range []int{0, 1} {
			files := base.Clone()
			finished = beginCut(t, files, k)
			after := files.Crash(func(int) int { return keep })
			n := runAt(t, after, "new", anew("new", 0).Options, time.Unix(seconds+9, 0))
			if got := n.r.Status().Revision; got != (seconds+9)<<20 || n.orders() != 20 {
				t.Fatalf("cut before write %d: revision %d, want %d; orders %d", k, got, uint64((seconds+9)<<20), n.orders())
			}
			must(t, n.disk.Close())
		}
		if k == 1 && finished {
			t.Fatal("a first start wrote nothing")
		}
	}
}

// beginCut opens the directory for the first time, with the power going before the k-th
// write; true: it came to its end before that.
func beginCut(t *testing.T, files *simdisk.Disk, k int) bool {
	t.Helper()
	d, rec, err := disk.Open(&simdisk.Faults{FS: files, Check: func(op simdisk.Op) error {
		if op.Writes() {
			k--
		}
		if k <= 0 {
			return simdisk.ErrPower
		}
		return nil
	}}, "new", anew("new", 0).Options, replica.Joining(core.Config{}))
	if err != nil {
		return false
	}
	defer d.Close()
	return d.Begin(9, &rec, time.Unix(seconds+5, 0)) == nil
}

// A clock with which tokens would end is refused, and nothing is changed by it.
func TestRestoreBeginsBeyond(t *testing.T) {
	files := simdisk.New()
	saved(t, files)
	_, err := disk.Restore(files, "backups/b", anew("new", 0))
	must(t, err)
	d, rec, err := disk.Open(files, "new", anew("new", 0).Options, replica.Joining(core.Config{}))
	must(t, err)
	if err := d.Begin(9, &rec, time.Unix(1<<40, 0)); err == nil || !strings.Contains(err.Error(), "the clock") {
		t.Errorf("a clock beyond all tokens: %v", err)
	}
	must(t, d.Close())
	if n := run(t, files, "new", anew("new", 0).Options); n.r.Status().Revision != seconds<<20 {
		t.Errorf("revision %d after a start that was refused", n.r.Status().Revision)
	}
}
