package filehold

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

func decodeProc(p *procID, text string) bool {
	b, err := hex.DecodeString(text)
	copy(p[:], b)
	return err == nil
}

// reboot makes the directory of an earlier boot fit for this one. Nobody of that
// time lives; what was not on disk is gone; and tokens and revisions that may
// have been given and forgotten are skipped. The store is locked.
func (e *engine) reboot() error {
	id, err := e.bootID()
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(id))
	boot := [2]uint64{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
	if boot[0] == e.ctl.load(wBoot) && boot[1] == e.ctl.load(wBoot+1) {
		return nil
	}
	if err := e.log.Salvage(); err != nil {
		return err
	}
	e.ctl.store(wBase, uint64(e.m.Now()+int64(time.Second)-int64(boottime())))
	e.ctl.store(wWatchers, 0)
	e.ctl.store(wSleepers, 0)
	if err := e.forget(); err != nil {
		return err
	}
	e.ctl.store(wBoot, boot[0])
	e.ctl.store(wBoot+1, boot[1])
	return e.ctl.flush()
}

// forget ends all sessions, since their processes ended with the boot, and skips the
// tokens and revisions that may have been given since they were last synced.
func (e *engine) forget() error {
	for p := range e.procs {
		if err := errors.Join(e.endSessions(p), e.vanish(p)); err != nil {
			return err
		}
	}
	if err := e.skip(e.ctl.load(wRevisions)); err != nil {
		return err
	}
	if err := e.ctl.reach(max(e.ctl.load(wCeiling), e.m.Revision())); err != nil {
		return err
	}
	return e.log.FlushNow()
}

// skip makes changes that nobody sees until the machine is at a revision.
func (e *engine) skip(to uint64) error {
	id := e.newSessionID()
	open := core.Frame{Session: id, Commands: []core.Command{{Op: core.OpOpen, Namespace: internal, TTL: int64(forever), Flags: core.Fleeting}}}
	end := core.Frame{Session: id, Commands: []core.Command{{Op: core.OpEnd, Namespace: internal}}}
	seq := uint64(0)
	for e.m.Revision() < to {
		steps := core.Frame{Session: id, Mark: seq + 1}
		for range min(to-e.m.Revision(), 1000) {
			seq++
			put := core.KeyOp{Kind: core.KeyPut, Key: "skipped"}
			steps.Commands = append(steps.Commands, core.Command{Op: core.OpTxn, Seq: seq, Then: []core.KeyOp{put}})
		}
		entry := core.Entry{Frames: [][]byte{core.AppendFrame(nil, &open), core.AppendFrame(nil, &steps), core.AppendFrame(nil, &end)}}
		if err := e.writeEntry(&entry); err != nil {
			return err
		}
		id = e.newSessionID()
		open.Session, end.Session, seq = id, id, 0
	}
	return nil
}

// internal is the namespace of what is no caller's.
const internal = "filehold"
