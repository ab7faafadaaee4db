package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

const seconds = 1_800_000_000

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node is one node on a simulated disk whose time the test makes.
type node struct {
	t    testing.TB
	disk *disk.Disk
	r    *replica.Node
	now  int64
	out  []replica.Answer
	next replica.Caller
	seq  uint64 // of the newest command; those of a restarted node go on behind it
}

var options = storage.Options{ClusterID: 1, NodeID: 1, SegmentSize: 16 << 10}

func run(t testing.TB, files storage.FS, dir string, o storage.Options, founders ...replica.Endpoint) *node {
	t.Helper()
	return runAt(t, files, dir, o, time.Unix(0, 0), founders...)
}

// runAt is run at a time of the wall clock.
func runAt(t testing.TB, files storage.FS, dir string, o storage.Options, clock time.Time, founders ...replica.Endpoint) *node {
	t.Helper()
	return begun(t, files, dir, o, clock, 0, founders...)
}

// begun is runAt of a group that begins at a Unix time; 0: it does not know one.
func begun(t testing.TB, files storage.FS, dir string, o storage.Options, clock time.Time, seconds int64, founders ...replica.Endpoint) *node {
	t.Helper()
	d, rec, err := disk.Open(files, dir, o, replica.Bootstrap(core.Config{}, founders))
	must(t, err)
	must(t, d.Begin(o.NodeID, &rec, clock))
	r, err := replica.New(replica.Config{ID: o.NodeID, SnapshotEntries: 10, Trailing: 5, Seconds: seconds}, rec)
	must(t, err)
	n := &node{t: t, disk: d, r: r}
	n.pump()
	return n
}

// pump writes and snapshots until the node asks for nothing more.
func (n *node) pump() {
	n.t.Helper()
	for {
		out := n.r.Output()
		must(n.t, n.r.Err())
		n.out = append(n.out, out.Answers...)
		if out.Snapshot != nil {
			must(n.t, n.disk.BeginSnapshot(*out.Snapshot))
			saved, err := n.disk.SaveChunk(n.r.SnapshotNext(out.Snapshot.Index, nil, 1<<20))
			must(n.t, err)
			if !saved {
				n.t.Fatal("a snapshot of more than a MiB")
			}
			n.r.SnapshotSaved(n.now, out.Snapshot.Index, true)
		}
		if out.Compact > 0 {
			must(n.t, n.disk.Compact(out.Compact))
		}
		if len(out.Writes) == 0 && out.Snapshot == nil {
			return
		}
		if len(out.Writes) > 0 {
			must(n.t, n.disk.Write(out.Writes))
			n.r.Written(n.now, out.Writes[len(out.Writes)-1].ID)
		}
	}
}

func (n *node) ticks(k int) {
	for range k {
		n.now += int64(100 * time.Millisecond)
		n.r.Tick(n.now)
		n.pump()
	}
}

// do runs commands of a session.
func (n *node) do(session byte, commands ...core.Command) core.Reply {
	n.t.Helper()
	for i := range commands {
		if commands[i].Op != core.OpOpen {
			n.seq++
			commands[i].Seq = n.seq
		}
	}
	n.next++
	n.r.Submit(n.now, n.next, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{session}, Attempt: 1, Mark: 1, Commands: commands}))
	n.pump()
	a := n.out[len(n.out)-1]
	if a.Caller != n.next || a.Outcome != replica.Done {
		n.t.Fatalf("answer %+v", a)
	}
	var r core.Reply
	must(n.t, core.DecodeReply(a.Data, &r))
	return r
}

func open() core.Command { return core.Command{Op: core.OpOpen, TTL: 30e9} }
func add() core.Command {
	return core.Command{Op: core.OpCount, Name: "orders", Count: core.CountAdd, Unsigned: true, A: 1}
}
func lock() core.Command {
	return core.Command{Op: core.OpAcquire, Flags: core.Try, Wants: []core.Want{{Name: "jobs", Kind: core.Mutex}}}
}

func (n *node) orders() uint64 {
	return n.r.Machine().Read("", &core.Command{Op: core.OpCount, Name: "orders", Unsigned: true}).Number
}

// saved runs a node that grants a lock and counts to 20, and saves it.
func saved(t testing.TB, files *simdisk.Disk) (token uint64) {
	t.Helper()
	n := run(t, files, "old", options, replica.Endpoint{ID: 1})
	r := n.do(1, open(), lock())
	for range 20 {
		n.do(1, add())
	}
	n.save(files, "backups/b")
	must(t, n.disk.Close())
	return r.Results[1].Token
}

func put(t testing.TB, files *simdisk.Disk, dir, name string, b []byte) {
	t.Helper()
	must(t, files.MkdirAll(dir))
	f, err := files.Create(name)
	must(t, err)
	_, err = f.WriteAt(b, 0)
	must(t, errors.Join(err, f.Sync(), files.SyncDir(dir)))
}

// save makes a backup of what the node has.
func (n *node) save(files *simdisk.Disk, to string) {
	n.t.Helper()
	n.r.WantSnapshot(n.now)
	n.pump()
	s, err := n.disk.OpenSnapshot(n.r.Status().SnapshotIndex)
	must(n.t, err)
	var b bytes.Buffer
	must(n.t, s.Save(&b))
	put(n.t, files, "backups", to, b.Bytes())
}

func anew(dir string, wait time.Duration) disk.Start {
	o := options
	o.ClusterID, o.NodeID = 7, 9
	return disk.Start{Dir: dir, Options: o, Self: replica.Endpoint{ID: 9}, Clock: time.Unix(seconds, 0), Wait: wait}
}

// Promise: "new cluster id, all sessions ended, revision := unix seconds · 2²⁰ or
// revision + 2⁴⁰, history compacted".
func TestRestore(t *testing.T) {
	files := simdisk.New()
	token := saved(t, files)
	from, err := disk.Restore(files, "backups/b", anew("new", 0))
	must(t, err)
	if from.ClusterID != 1 || from.Index == 0 || from.Revision < token {
		t.Errorf("it began from %+v", from)
	}
	n := run(t, files, "new", anew("new", 0).Options)
	if got := n.r.Status(); got.Revision != seconds<<20 || got.ID != 9 || !got.Serving {
		t.Errorf("the new node stands at %+v, want revision %d", got, uint64(seconds<<20))
	}
	if _, there := n.r.Machine().Session(core.SessionID{1}); there || n.orders() != 20 {
		t.Errorf("the old session is there: %v; orders are %d, want 20", there, n.orders())
	}
	if r := n.do(2, open(), lock()); r.Results[1].Code != core.CodeOK || r.Results[1].Token <= seconds<<20 || r.Results[1].Token >= 1<<53 {
		t.Errorf("the lock: %+v", r.Results[1])
	}
}

// A clock that stands in the past takes nothing from the jump.
func TestRestoreWithoutClock(t *testing.T) {
	files := simdisk.New()
	saved(t, files)
	s := anew("new", 0)
	s.Clock = time.Unix(-5, 0)
	from, err := disk.Restore(files, "backups/b", s)
	must(t, err)
	n := run(t, files, "new", s.Options)
	if got := n.r.Status().Revision; got != from.Revision+1<<40 {
		t.Errorf("revision %d after %d", got, from.Revision)
	}
	s = anew("late", 0)
	s.Clock = time.Unix(1<<40, 0)
	if _, err := disk.Restore(files, "backups/b", s); err == nil {
		t.Error("began with a revision that no token can have")
	}
}

// Promise: "the later one has the greater tokens": a backup that is restored twice, and
// an older one after the backup of a group that was restored itself. All are
// younger than 2²⁰ seconds, so that a jump of 2⁴⁰ would be ahead of the clock.
func TestRestoreAgain(t *testing.T) {
	files, last := simdisk.New(), uint64(0)
	saved(t, files)
	for i, step := range []struct{ from, to string }{{"b", "c"}, {"c", "d"}, {"c", "e"}, {"d", "f"}, {"c", "g"}} {
		s := anew(step.to, 0)
		s.Clock, s.Options.ClusterID = s.Clock.Add(time.Duration(i)*time.Minute), uint64(10+i)
		_, err := disk.Restore(files, "backups/"+step.from, s)
		must(t, err)
		n := run(t, files, step.to, s.Options)
		token := n.do(byte(i+2), open(), lock()).Results[1].Token
		if token <= last {
			t.Errorf("%s, restored from %s, gives token %d after %d", step.to, step.from, token, last)
		}
		last = token
		n.save(files, "backups/"+step.to)
		must(t, n.disk.Close())
	}
}

// A group that was begun, saved and restored within one second goes on at the clock, not 2⁴⁰
// above it, where those that begin in the next twelve days would be below it.
func TestRestoreWithinSecond(t *testing.T) {
	files := simdisk.New()
	saved(t, files)
	s := anew("b", 0)
	_, err := disk.Restore(files, "backups/b", s)
	must(t, err)
	n := runAt(t, files, "b", s.Options, s.Clock.Add(time.Millisecond))
	n.do(2, open(), lock())
	n.save(files, "backups/c")
	must(t, n.disk.Close())
	s = anew("c", 0)
	s.Options.ClusterID, s.Clock = 8, s.Clock.Add(500*time.Millisecond)
	_, err = disk.Restore(files, "backups/c", s)
	must(t, err)
	if got := run(t, files, "c", s.Options).r.Status().Revision; got != seconds<<20+1<<19 {
		t.Errorf("revision %d, want %d", got, uint64(seconds<<20+1<<19))
	}
}

// Promise: "--wait to hold back all grants for a time"; it survives restarts and
// ends by itself.
func TestWait(t *testing.T) {
	files := simdisk.New()
	saved(t, files)
	s := anew("new", 10*time.Second)
	_, err := disk.Restore(files, "backups/b", s)
	must(t, err)
	n := run(t, files, "new", s.Options)
	if r := n.do(2, open(), lock()); r.Results[1].Code != core.CodeUnavailable {
		t.Errorf("at once: code %d, want unavailable", r.Results[1].Code)
	}
	n.ticks(60)
	r := n.do(2, add(), lock())
	if text := r.Results[1].Text; !strings.Contains(text, "for another 4s") {
		t.Errorf("a try is told %q", text)
	}
	if left := n.r.Status().Held; left < 3*time.Second || left > 5*time.Second {
		t.Errorf("the wait still takes %s", left)
	}
	waits := lock()
	waits.Flags, waits.Wants[0].Name = 0, "queue"
	if r := n.do(2, waits); r.Results[0].Code != core.CodeQueued {
		t.Errorf("code %d of a lock that may wait", r.Results[0].Code)
	}
	must(t, n.disk.Close())
	seq := n.seq
	n = run(t, files, "new", s.Options)
	n.seq = seq
	n.ticks(30)
	if r := n.do(2, lock()); r.Results[0].Code != core.CodeUnavailable {
		t.Errorf("a second before the end: code %d, want unavailable", r.Results[0].Code)
	}
	n.ticks(15)
	if r := n.do(2, lock()); r.Results[0].Code != core.CodeOK {
		t.Errorf("after the wait: code %d", r.Results[0].Code)
	}
	tries := lock()
	tries.Wants[0].Name = "queue"
	if r := n.do(3, open(), tries); r.Results[1].Code != core.CodeHeld {
		t.Errorf("what waited does not hold: code %d", r.Results[1].Code)
	}
	if n.r.Status().Members.Held != 0 {
		t.Error("the wait is still noted")
	}
}

// Promise: "a damaged or truncated backup …: clear errors, nothing overwritten":
// every bit of a backup is flipped once, and it is cut at every length.
func TestRestoreRefusesEveryFlip(t *testing.T) {
	files := simdisk.New()
	saved(t, files)
	whole := files.Read("backups/b")
	tries := 0
	refuse := func(b []byte, what string, at int) {
		tries++
		put(t, files, "backups", "backups/bad", b)
		_, err := disk.Restore(files, "backups/bad", anew("new", 0))
		full, ok := errors.AsType[*storage.Error](err)
		if !ok || full.File != "backups/bad" || full.Advice == "" || !errors.Is(err, storage.ErrDamaged) && !errors.Is(err, storage.ErrVersion) {
			t.Fatalf("%s at %d: %v", what, at, err)
		}
		if _, err := files.List("new"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s at %d: the new directory was begun: %v", what, at, err)
		}
	}
	for bit := range len(whole) * 8 {
		b := slices.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		refuse(b, "flip", bit)
	}
	for n := range len(whole) {
		refuse(whole[:n], "cut", n)
	}
	t.Logf("proof: %d bytes of backup: %d flips and cuts refused, nothing written", len(whole), tries)
}

// What is in the way is named, and stays as it is.
func TestRestoreRefuses(t *testing.T) {
	files := simdisk.New()
	saved(t, files)
	put(t, files, "mine", "mine/letters.txt", []byte("x"))
	running := run(t, files, "running", options, replica.Endpoint{ID: 1})
	defer running.disk.Close()
	same := anew("new", 0)
	same.Options.ClusterID = 1
	group := anew("new", 0)
	group.Options.Group = 3
	for _, c := range []struct {
		name, backup string
		start        disk.Start
		want         error
		says         string
	}{
		{"no backup", "backups/none", anew("new", 0), fs.ErrNotExist, "backups/none"},
		{"somebody's directory", "backups/b", anew("mine", 0), fs.ErrExist, "mine/letters.txt"},
		{"a store", "backups/b", anew("old", 0), fs.ErrExist, "old"},
		{"a running node", "backups/b", anew("running", 0), fs.ErrExist, "running"},
		{"the old cluster id", "backups/b", same, fs.ErrInvalid, "new cluster id"},
		{"another group", "backups/b", group, storage.ErrForeign, "backups/b"},
	} {
		before := content(files)
		_, err := disk.Restore(files, c.backup, c.start)
		if !errors.Is(err, c.want) || !bytes.Contains([]byte(err.Error()), []byte(c.says)) {
			t.Errorf("%s: %v", c.name, err)
		}
		if content(files) != before {
			t.Errorf("%s: something was written", c.name)
		}
	}
}

func content(files *simdisk.Disk) string {
	all := ""
	for _, dir := range []string{"mine", "old", "running", "new"} {
		names, _ := files.List(dir)
		for _, name := range names {
			all += fmt.Sprintf("%s/%s %x\n", dir, name, files.Read(dir+"/"+name))
		}
	}
	return all
}

// Promise: a restore that is cut short leaves no directory that passes for a
// finished one: the power goes before every write of it.
func TestRestoreCutShort(t *testing.T) {
	base := simdisk.New()
	saved(t, base)
	for k := 1; ; k++ {
		for _, keep := range []int{0, 1} {
			files := base.Clone()
			finished := cutAt(files, k)
			after := files.Crash(func(int) int { return keep })
			names, _ := after.List("new")
			begun := slices.ContainsFunc(names, func(name string) bool { return name != "LOCK" && !strings.HasPrefix(name, "tmp-") })
			d, rec, err := disk.Open(after, "new", anew("new", 0).Options, replica.Joining(core.Config{}))
			switch {
			case err == nil && rec.Snapshot.Index == 0 && !begun && !finished:
				d.Close() // an empty directory, as before
			case err == nil && rec.Machine.Revision() == seconds<<20:
				d.Close()
			case errors.Is(err, storage.ErrDamaged) && !finished:
				if _, err := disk.Restore(after, "backups/b", anew("new", 0)); err != nil {
					t.Fatalf("cut before write %d, and begun again: %v", k, err)
				}
			default:
				t.Fatalf("cut before write %d, finished %v: snapshot at %d, %v", k, finished, rec.Snapshot.Index, err)
			}
			if finished {
				t.Logf("proof: a restore cut before each of its %d writes", k-1)
				return
			}
		}
	}
}

// cutAt restores with the power going before the k-th write; true: it finished
// before that.
func cutAt(files *simdisk.Disk, k int) bool {
	_, err := disk.Restore(&simdisk.Faults{FS: files, Check: func(op simdisk.Op) error {
		if op.Writes() {
			k--
		}
		if k <= 0 {
			return simdisk.ErrPower
		}
		return nil
	}}, "backups/b", anew("new", 0))
	return err == nil
}

// A full disk ends a restore, which then can be tried again.
func TestRestoreOnFullDisk(t *testing.T) {
	files := simdisk.New()
	saved(t, files)
	full := &simdisk.Faults{FS: files, Check: func(op simdisk.Op) error {
		if op.Kind == "write" {
			return syscall.ENOSPC
		}
		return nil
	}}
	if _, err := disk.Restore(full, "backups/b", anew("new", 0)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
	if _, err := disk.Restore(files, "backups/b", anew("new", 0)); err != nil {
		t.Errorf("with space again: %v", err)
	}
}

// A disk that fails ends a restore. There is no node that could be started again: what it says is to
// give the command again, which then works.
func TestRestoreOnFailingDisk(t *testing.T) {
	base := simdisk.New()
	saved(t, base)
	for _, kind := range []string{"write", "sync", "sync directory", "rename"} {
		for k := 1; ; k++ {
			files := base.Clone()
			err := failing(files, kind, k)
			if err == nil {
				break
			}
			names, _ := files.List("new")
			if said := err.Error(); slices.Contains(names, "unfinished") && (strings.Contains(said, "start it again") || !strings.Contains(said, "give the command again")) {
				t.Errorf("%s %d: %v", kind, k, err)
			}
			if _, err := disk.Restore(files, "backups/b", anew("new", 0)); err != nil {
				t.Errorf("%s %d, and again: %v", kind, k, err)
			}
		}
	}
}

// failing restores with the k-th operation of a kind ending in an error of the disk.
func failing(files *simdisk.Disk, kind string, k int) error {
	_, err := disk.Restore(&simdisk.Faults{FS: files, Check: func(op simdisk.Op) error {
		if op.Kind == kind {
			k--
		}
		if op.Kind == kind && k == 0 {
			return syscall.EIO
		}
		return nil
	}}, "backups/b", anew("new", 0))
	return err
}

// Promise: accept-loss salvages what is readable, up to the first damage.
func TestAcceptLoss(t *testing.T) {
	files := simdisk.New()
	saved(t, files)
	if _, err := disk.AcceptLoss(files, "old", anew("new", 0)); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a sound directory: %v", err)
	}
	n := run(t, files, "old", options)
	if _, err := disk.AcceptLoss(files, "old", anew("new", 0)); !errors.Is(err, storage.ErrLocked) {
		t.Errorf("a running node: %v", err)
	}
	n.seq = 30
	for range 5 {
		n.do(1, add())
	}
	must(t, n.disk.Close())
	names, err := files.List("old")
	must(t, err)
	for _, name := range names {
		if len(name) > 4 && name[:4] == "log-" {
			hurt(files, "old/"+name)
		}
	}
	before := content(files)
	from, err := disk.AcceptLoss(files, "old", anew("new", 0))
	must(t, err)
	if len(from.Findings) == 0 || from.ClusterID != 1 {
		t.Errorf("it began from %+v", from)
	}
	n = run(t, files, "new", anew("new", 0).Options)
	if got := n.orders(); got < 20 || got > 25 {
		t.Errorf("orders are %d, want 20 to 25", got)
	}
	if r := n.do(2, open(), lock()); r.Results[1].Code != core.CodeOK || r.Results[1].Token <= seconds<<20 {
		t.Errorf("the lock: %+v", r.Results[1])
	}
	must(t, n.disk.Close())
	if after := content(files); !bytes.HasPrefix([]byte(after), []byte(before)) {
		t.Error("the damaged directory was changed")
	}
}

// hurt flips a bit in the middle of what a log file holds.
func hurt(files *simdisk.Disk, name string) {
	used := len(bytes.TrimRight(files.Read(name), "\x00"))
	files.Flip(name, used/2*8)
}

// Promise: force-new-cluster: a lone survivor becomes a cluster of one.
func TestForceNewCluster(t *testing.T) {
	files := simdisk.New()
	saved(t, files)
	if _, err := disk.ForceNewCluster(files, "old", anew("new", 0)); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a node that was alone: %v", err)
	}
	must(t, survivor(t, files))
	if _, err := disk.ForceNewCluster(files, "joining", anew("new", 0)); err == nil {
		t.Error("began from a node that never had a state")
	}
	_, err := disk.ForceNewCluster(files, "survivor", anew("new", 0))
	must(t, err)
	n := run(t, files, "new", anew("new", 0).Options)
	if voters := n.r.Status().Members.Conf.GetVoters(); !slices.Equal(voters, []uint64{9}) || !n.r.Status().Serving {
		t.Errorf("voters are %v, serving %v", voters, n.r.Status().Serving)
	}
	if r := n.do(2, open(), lock()); r.Results[1].Code != core.CodeOK {
		t.Errorf("the lock: %+v", r.Results[1])
	}
}

// A learner that is all that is left of a group becomes a cluster of one, though the group
// had one voter: that voter is another node, and its disk is lost.
func TestForceNewCluster_Learner(t *testing.T) {
	files, o := simdisk.New(), options
	o.NodeID = 4
	d, _, err := disk.Open(files, "learner", o, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	must(t, err)
	must(t, d.Close())
	_, err = disk.ForceNewCluster(files, "learner", anew("new", 0))
	must(t, err)
	if n := run(t, files, "new", anew("new", 0).Options); !n.r.Status().Serving {
		t.Error("it does not serve")
	}
}

// survivor is one node of three that cannot decide alone, and one that never
// joined.
func survivor(t *testing.T, files *simdisk.Disk) error {
	three := []replica.Endpoint{{ID: 1}, {ID: 2}, {ID: 3}}
	n := run(t, files, "survivor", options, three...)
	n.ticks(100)
	if n.r.Status().Serving {
		t.Error("one of three serves alone")
	}
	j, _, err := disk.Open(files, "joining", options, replica.Joining(core.Config{}))
	must(t, err)
	return errors.Join(n.disk.Close(), j.Close())
}
