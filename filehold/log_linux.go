package filehold

import (
	"fmt"
	"iter"
	"os"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/filelog"
)

// newLog is the log of the store, which makes the engine's machine and list of
// sessions.
func (e *engine) newLog() *filelog.Log {
	return filelog.New(filelog.Config{
		Dir: e.sub, Shared: logWords{e.ctl}, State: e, Guard: &e.mu, Sync: e.syncLog, CompactAt: e.compactAt,
		Temp: func() (*os.File, error) { return tempFile(e.sub, filelog.Name, e.perm) },
	})
}

// logWords are the words of the control file that are the log's.
type logWords struct{ c *control }

func (w logWords) at(i filelog.Word) int {
	return [...]int{filelog.End: wEnd, filelog.Durable: wDurable, filelog.Replacing: wSwitching, filelog.Suspect: wSuspect}[i]
}

func (w logWords) Load(i filelog.Word) uint64              { return w.c.load(w.at(i)) }
func (w logWords) Store(i filelog.Word, v uint64)          { w.c.store(w.at(i), v) }
func (w logWords) Swap(i filelog.Word, old, v uint64) bool { return w.c.swap(w.at(i), old, v) }
func (w logWords) Err() error                              { return w.c.err() }

// config is what every process makes its machine with. Liveness is the
// kernel's: no session ends by time.
func (e *engine) config() core.Config {
	return core.Config{Revision: e.ctl.load(wRevisions) + 1, MaxTTL: int64(forever)}
}

// Snapshot tells the machine and the sessions, in records.
func (e *engine) Snapshot(add func(filelog.Record)) {
	v := e.m.View()
	defer v.Close()
	for done := false; !done; {
		var chunk []byte
		chunk, done = v.Next(nil, 64<<10)
		add(filelog.Record{Kind: recChunk, Body: chunk})
	}
	for ids := range slices.Chunk(e.allSessions(), membersPerRecord) {
		add(filelog.Record{Kind: recMembers, Body: appendMembers(nil, ids)})
	}
}

// membersPerRecord keeps the list of any number of sessions within the size of a
// record.
const membersPerRecord = 4096

// allSessions lists the sessions of every process, in order.
func (e *engine) allSessions() []core.SessionID {
	var ids []core.SessionID
	for _, p := range e.procs {
		for id := range p {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b core.SessionID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// Restore reads what Snapshot told.
func (e *engine) Restore(records iter.Seq2[filelog.Record, error]) error {
	x := core.NewRestorer()
	procs := map[procID]map[core.SessionID]struct{}{}
	for r, err := range records {
		switch {
		case err != nil:
		case r.Kind == recChunk:
			err = x.Write(r.Body)
		case r.Kind == recMembers:
			err = addMembers(procs, r.Body)
		default:
			err = fmt.Errorf("a record of type %d is in the snapshot", r.Kind)
		}
		if err != nil {
			return err
		}
	}
	m, err := x.Machine()
	if err == nil {
		e.m, e.procs = m, procs
	}
	return err
}

func addMembers(procs map[procID]map[core.SessionID]struct{}, body []byte) error {
	ids, err := decodeMembers(body)
	for _, id := range ids {
		join(procs, id)
	}
	return err
}

// resume begins with the log that is there now, and tells every user here what
// it missed. The store is locked, e.mu is held.
func (e *engine) resume() error {
	if err := e.log.Load(); err != nil {
		return err
	}
	e.wake(e.hub.Jump(e.m.Revision()))
	for id := range e.procs {
		e.met(id)
	}
	for _, u := range e.users {
		u.recall()
	}
	e.rearm()
	return nil
}

// write appends a record that then counts for everybody, and applies it. The
// store is locked, e.mu is held and everything before was applied.
func (e *engine) write(kind byte, body []byte) error {
	if e.m.Revision()+revisionBlock/2 > e.ctl.load(wRevisions) {
		if err := e.ctl.raise(wRevisions, e.m.Revision()+2*revisionBlock); err != nil {
			return err
		}
	}
	if err := e.log.Append(filelog.Record{Kind: kind, Body: body}); err != nil {
		return err
	}
	if kind == recEvent || e.concernsAll() {
		e.ring()
		return nil
	}
	e.ringGranted()
	return nil
}

// compactAt is from which size on a log is replaced by a snapshot.
const compactAt = 4 << 20

// compact replaces the log if it is worth it. The store is locked, e.mu is held
// and everything before was applied. What fails is tried again after the next
// change; the maker of this one need not know.
func (e *engine) compact() error {
	replaced, err := e.log.Compact()
	if replaced {
		e.ring()
	}
	return err
}
