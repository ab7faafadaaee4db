package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// Start says how a group of one begins anew from an old state; see
// [replica.Anew] for what that forgets.
type Start struct {
	// Dir is made by the start; it must be missing or empty.
	Dir string
	// Options are those of Dir. The cluster id must be a new one.
	Options storage.Options
	// Self is the one member; its ID is that of Options.
	Self replica.Endpoint
	// Clock is the wall clock.
	Clock time.Time
	// Wait is for how much cluster time nothing is granted.
	Wait time.Duration
	// Until is the last revision of the old state that counts, UntilDate the last Unix
	// second, by the clocks of its leaders; 0: all of it does.
	Until     uint64
	UntilDate int64

	examine bool // begin nothing
}

// Origin is what a group began from.
type Origin struct {
	ClusterID uint64 // of the group before
	// Index is the last log entry that went into the state; Revision is what
	// the state had then.
	Index, Revision uint64
	// Date is when the last command came that tells it, in Unix seconds; 0: none does.
	Date int64
	// Findings are what is wrong with a directory that was salvaged.
	Findings []storage.Finding
}

// Restore begins from a backup. Nothing is written before all of the backup was
// read and found whole.
func Restore(fsys storage.FS, backup string, s Start) (Origin, error) {
	r, err := storage.OpenBackup(fsys, backup)
	if err != nil {
		return Origin{}, err
	}
	defer r.Close()
	if r.Group() != s.Options.Group {
		return Origin{}, fmt.Errorf("%s is of group %d, not %d: %w", backup, r.Group(), s.Options.Group, storage.ErrForeign)
	}
	machine, err := restore(r)
	if err != nil {
		return Origin{}, fmt.Errorf("read backup %s: %w", backup, err)
	}
	from := Origin{ClusterID: r.Cluster(), Index: r.Meta().Index, Revision: machine.Revision()}
	return from, s.begin(fsys, machine, &from)
}

// RestoreUntil begins from a snapshot and the log in the directory of a node, which it
// does not change, as far as the log goes up to and with revision s.Until or the second
// s.UntilDate: what comes after is left out, be it unwanted, a snapshot made since, or an entry that
// cannot be applied.
func RestoreUntil(fsys storage.FS, old string, s Start) (Origin, error) {
	return s.salvage(fsys, old, func(left *remains) error {
		switch {
		case left.damaged():
			return fmt.Errorf("%s is damaged: accept the loss, or restore a backup: %w", old, storage.ErrDamaged)
		case s.UntilDate > 0 && !left.within(&s):
			return left.reaches(old, s.UntilDate)
		case s.UntilDate > 0:
		case left.empty && left.above > 0:
			return fmt.Errorf("the log in %s begins with revision %d, which is above %d, so that nothing would be restored: name a revision from %d on (a log entry, as holdfast status tells them, is none): %w", old, left.above, s.Until, left.above, fs.ErrInvalid)
		case !left.within(&s):
			return fmt.Errorf("the log in %s begins after revision %d, which is above %d: restore a backup from before, or name a revision from %d on: %w", old, left.oldest, s.Until, left.oldest, fs.ErrInvalid)
		}
		return nil
	})
}

// reaches refuses a date of which nothing tells that the snapshot is older.
func (l *remains) reaches(dir string, date int64) error {
	switch {
	case l.of > 0:
		return fmt.Errorf("the oldest snapshot in %s that the log goes on from is of %s, revision %d: what was there at %s is not told any more; restore a backup from before, or name a time from then on: %w",
			dir, clock(l.of), l.oldest, clock(date), fs.ErrInvalid)
	case l.beyond > 0:
		return fmt.Errorf("the log in %s begins at %s, after revision %d: what was there at %s it does not tell; restore a backup from before, or name a time from then on: %w",
			dir, clock(l.beyond), l.oldest, clock(date), fs.ErrInvalid)
	}
	return fmt.Errorf("no entry of the log in %s tells its date, as the commands of a group from version 3 on do: name a revision, from %d on: %w", dir, l.oldest, fs.ErrInvalid)
}

// clock is a Unix time as it is told to people.
func clock(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

// Examine reads a backup or the directory of a node that is stopped, applies the log to the
// snapshot as a start would, and changes nothing.
func Examine(fsys storage.FS, path string, dir bool) (Origin, error) {
	if dir {
		return (&Start{examine: true}).salvage(fsys, path, func(*remains) error { return nil })
	}
	r, err := storage.OpenBackup(fsys, path)
	if err != nil {
		return Origin{}, err
	}
	defer r.Close()
	machine, err := restore(r)
	if err != nil {
		return Origin{}, fmt.Errorf("read backup %s: %w", path, err)
	}
	return Origin{ClusterID: r.Cluster(), Index: r.Meta().Index, Revision: machine.Revision()}, nil
}

// AcceptLoss begins from what is readable of a damaged directory, which it does
// not change.
func AcceptLoss(fsys storage.FS, old string, s Start) (Origin, error) {
	return s.salvage(fsys, old, func(left *remains) error {
		if !left.damaged() {
			return fmt.Errorf("%s is not damaged, so there is no loss to accept: start the node, or force a new cluster if the others are gone: %w", old, fs.ErrInvalid)
		}
		return nil
	})
}

// ForceNewCluster begins from the directory of the one node that is left of a
// group, which it does not change. What the others had and this one had not is
// lost.
func ForceNewCluster(fsys storage.FS, old string, s Start) (Origin, error) {
	return s.salvage(fsys, old, func(left *remains) error {
		switch {
		case left.damaged():
			return fmt.Errorf("%s is damaged too: accept the loss, or restore a backup: %w", old, storage.ErrDamaged)
		case left.alone():
			return fmt.Errorf("%s is a cluster of one already: start the node: %w", old, fs.ErrInvalid)
		}
		return nil
	})
}

// remains is what was left of a directory.
type remains struct {
	store *storage.Store
	node  uint64 // the owner of the directory
	rec   storage.Recovered
	base  storage.SnapshotMeta // the snapshot that is read
	conf  replica.Membership
	moved bool // the membership has changed since the snapshot

	unsound bool // the content of the snapshot makes no state

	oldest, last uint64 // the revision of the snapshot; the last entry that counts
	above        uint64 // the first revision that does not count; 0: all do
	empty        bool   // what counts is a state before the first revision
	date, beyond int64  // the last date that counts, and the first that does not; 0: there is none

	of int64 // the date of the snapshot, if dates count; 0: it does not tell

	told struct{ date, now int64 } // by the last entry that tells its date
}

func (l *remains) damaged() bool {
	return slices.ContainsFunc(l.rec.Findings, func(f storage.Finding) bool { return f.Damage })
}

// alone reports whether the node is the one that decides, and can start as it is.
func (l *remains) alone() bool {
	return !l.moved && slices.Equal(l.conf.Conf.GetVoters(), []uint64{l.node}) && len(l.conf.Conf.GetVotersOutgoing()) == 0
}

func (s *Start) salvage(fsys storage.FS, old string, check func(*remains) error) (Origin, error) {
	cluster, node, err := storage.Owner(fsys, old)
	if err != nil {
		return Origin{}, err
	}
	store, rec, err := storage.Salvage(fsys, old)
	if err != nil {
		return Origin{}, err
	}
	defer store.Close()
	left, machine, err := s.readBack(&remains{store: store, node: node, rec: rec})
	if err != nil {
		return Origin{}, fmt.Errorf("read what is left in %s: %w", old, err)
	}
	if err := check(left); err != nil {
		return Origin{}, err
	}
	from := Origin{ClusterID: cluster, Index: left.last, Revision: machine.Revision(), Date: cmp.Or(left.date, left.of), Findings: left.rec.Findings}
	if s.examine {
		return from, nil
	}
	return from, s.begin(fsys, machine, &from)
}

// readBack reads what counts of a directory, beginning from its newest snapshot. If that is of a
// later state than counts, or cannot be restored, it begins from the one before.
func (s *Start) readBack(from *remains) (left *remains, machine *core.Machine, err error) {
	bases := from.store.Bases()
	if len(bases) == 0 {
		return nil, nil, errors.New("there is no state: this node never belonged to a group")
	}
	for ; len(bases) > 0; bases = from.before(left.base.Index) {
		again := *from
		left, again.base = &again, bases[0]
		machine, err = left.read(s, math.MaxUint64)
		if err == nil && left.last < left.rec.Last && s.Until > 0 { // it went on to see that the next one is beyond
			machine, err = left.read(s, left.last)
		}
		if left.unsound {
			from.reject(again.base.Index, err)
			continue
		}
		if s.Until == 0 && s.UntilDate == 0 || err == nil && left.within(s) {
			break
		}
	}
	return left, machine, err
}

// reject goes on without a snapshot whose content makes no state.
func (l *remains) reject(index uint64, why error) {
	f, _ := l.store.Reject(index, why)
	l.rec.Findings = append(slices.Clip(l.rec.Findings), f)
}

// before are the snapshots to begin from that are older than index, the newest first.
func (l *remains) before(index uint64) []storage.SnapshotMeta {
	return slices.DeleteFunc(l.store.Bases(), func(m storage.SnapshotMeta) bool { return m.Index >= index })
}

// within reports whether the snapshot is known to be of a state that counts.
func (l *remains) within(s *Start) bool {
	if s.UntilDate > 0 {
		return l.date > 0 || l.of > 0 && l.of <= s.UntilDate
	}
	return l.oldest <= s.Until
}

// read brings the snapshot up to the end of the readable log, to the
// entry at index last, to the first one of a later date than s.UntilDate, or to the first
// one that goes beyond revision s.Until, which is then in the machine, too. Entries count whether or not this node knew
// that they were committed: others may have acknowledged them.
func (l *remains) read(s *Start, last uint64) (*core.Machine, error) {
	meta, machine, err := load(l.store, l.base)
	if err != nil {
		l.unsound = errors.Is(err, storage.ErrDamaged)
		return nil, err
	}
	l.conf = meta.Conf
	l.oldest, l.last = machine.Revision(), meta.Index
	if s.UntilDate > 0 && l.dates(machine) > s.UntilDate {
		return machine, nil
	}
	for e, err := range l.store.Replay(meta.Index + 1) {
		if err != nil || e.Index > last {
			return machine, err
		}
		before, date := machine.Revision(), l.dated(e)
		if s.UntilDate > 0 && date > s.UntilDate {
			l.beyond = date
			return machine, nil
		}
		err := replica.Replay(machine, raftEntry(e))
		if s.Until > 0 && (machine.Revision() > s.Until || err != nil && before == s.Until) {
			l.above, l.empty = machine.Revision(), before == 0
			return machine, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w; to begin anew with what is before it: holdfast snapshot restore DIR --until %d --data NEW", &replica.Unapplied{Index: e.Index, Revision: before, Err: err}, before)
		}
		l.moved = l.moved || raftpb.EntryType(e.Type) != raftpb.EntryNormal
		l.last, l.date = e.Index, max(l.date, l.told.date)
	}
	return machine, nil
}

// dates notes of when the snapshot is, in Unix seconds; 0: that is not known.
func (l *remains) dates(machine *core.Machine) int64 {
	l.of = machine.Date()
	l.told.date, l.told.now = l.of, machine.Now()
	return l.of
}

// dated is when an entry was written, in Unix seconds; 0: that is not known. One that does not
// tell, as those by which time passes and keys end without a command, came as long after the last
// one that does as cluster time has passed since, at least: that stands still without a leader.
func (l *remains) dated(e storage.Entry) int64 {
	date, now := replica.Date(raftEntry(e))
	switch {
	case date > 0:
		l.told.date, l.told.now = date, now
	case l.told.date > 0 && now > l.told.now:
		return l.told.date + (now-l.told.now)/int64(time.Second)
	}
	return date
}

// Begin is to be called after Open and before a node runs: it lets what Restore,
// AcceptLoss or ForceNewCluster made begin at the clock of its first start, and
// changes nothing else. Cut short, it leaves the state as it was or with the later revision, and
// is done again: a start that wrote nothing of its own was not the first one.
func (d *Disk) Begin(id uint64, rec *replica.Recovered, clock time.Time) error {
	if !rec.New(id) {
		return nil
	}
	if err := rec.Begin(clock); err != nil {
		return err
	}
	w, err := d.newSnapshot(rec.Snapshot)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := copyView(w, rec.Machine); err != nil {
		return err
	}
	return d.store.ReplaceSnapshots(w)
}

// Copied tells of which directory this one is a copy, or where it has been moved from; nil: it is where it was,
// as far as is known.
func (d *Disk) Copied() *storage.Copied { return d.copied }

// Settle lets the directory of node id go on where it has come to; see [storage.Store.Settle]. One of a node
// that is [replica.Recovered.Alone] gives greater tokens from now on than the other, should that be used, too. Cut
// short, it is done again.
func (d *Disk) Settle(id uint64, rec *replica.Recovered, newest uint8, clock time.Time) error {
	if !rec.Alone(id) {
		return d.store.Settle()
	}
	if e := rec.Fork(id, newest, clock); e != nil {
		if err := d.Write([]replica.Write{{Entries: []*raftpb.Entry{e}}}); err != nil {
			return err
		}
		rec.Entries = append(rec.Entries, e)
	}
	return d.store.Settle()
}

// begin makes the new directory.
func (s *Start) begin(fsys storage.FS, machine *core.Machine, from *Origin) error {
	if from.ClusterID == s.Options.ClusterID {
		return fmt.Errorf("cluster %d is the one that the state is of: what goes on from it needs a new cluster id: %w", from.ClusterID, fs.ErrInvalid)
	}
	found, err := replica.Anew(machine, s.Self, s.Clock, s.Wait)
	if err != nil {
		return err
	}
	meta, err := stored(found.Snapshot)
	if err != nil {
		return err
	}
	return storage.Found(fsys, s.Dir, s.Options, meta, func(w io.Writer) error { return copyView(w, machine) })
}
