package filehold

import (
	"encoding/binary"
	"iter"
	"maps"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/filelog"
)

// A snapshot with any number of sessions can be read again.
func TestSnapshot_ManySessions(t *testing.T) {
	e := &engine{m: core.New(core.Config{}), procs: map[procID]map[core.SessionID]struct{}{}}
	const sessions = filelog.MaxRecord/len(core.SessionID{}) + 1
	for i := range uint64(sessions) {
		var id core.SessionID
		binary.BigEndian.PutUint64(id[:], i%7)
		binary.BigEndian.PutUint64(id[8:], i)
		join(e.procs, id)
	}
	again := &engine{}
	if err := again.Restore(records(t, e)); err != nil {
		t.Fatal(err)
	}
	for p, ids := range e.procs {
		if !maps.Equal(ids, again.procs[p]) {
			t.Errorf("of a process with %d sessions, %d were read", len(ids), len(again.procs[p]))
		}
	}
}

// records are those of e's snapshot, none of which is too large to be read.
func records(t *testing.T, e *engine) iter.Seq2[filelog.Record, error] {
	var list []filelog.Record
	e.Snapshot(func(r filelog.Record) {
		if len(r.Body) > filelog.MaxRecord {
			t.Errorf("a record of type %d has %d bytes", r.Kind, len(r.Body))
		}
		list = append(list, r)
	})
	return func(yield func(filelog.Record, error) bool) {
		for _, r := range list {
			if !yield(r, nil) {
				return
			}
		}
	}
}
