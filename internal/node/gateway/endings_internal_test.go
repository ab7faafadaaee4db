package gateway

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
)

// heard is a watch that left out what happened, and then has nothing more.
type heard struct{ told bool }

func (h *heard) Next(context.Context, []core.Event, int) ([]core.Event, uint64, error) {
	if h.told {
		return nil, 0, errors.New("over")
	}
	h.told = true
	return nil, 1, nil
}

// An end of a session that the watch left out is found all the same; sessions that
// live, and those that came after an end of their id, wait on.
func TestEndings_LeftOut(t *testing.T) {
	g := alone(t)
	open := core.Command{Op: core.OpOpen, Namespace: "default", TTL: int64(time.Hour)}
	lives := g.newLease("default", 1, open)
	if _, err := g.submit(t.Context(), &core.Frame{Session: lives.id, Mark: 1, Commands: []core.Command{open}}); err != nil {
		t.Fatal(err)
	}
	over := g.newLease("default", 2, open)
	waits := map[*lease]*wait{}
	for _, x := range []*lease{lives, over} {
		waits[x] = &wait{l: x, seq: 1, queued: 5, done: make(chan outcome, 1)}
		g.waits.waits[x.id] = &attached{waits: []*wait{waits[x]}}
	}
	g.waits.tellEnds(t.Context(), "default", &heard{})
	if len(waits[lives].done) != 0 {
		t.Error("a session that lives is taken for ended")
	}
	select {
	case o := <-waits[over].done:
		if o.row.State != core.ClaimGone || o.row.Code != core.CodeNoSession {
			t.Errorf("the wait of an ended session is told %+v", o)
		}
	default:
		t.Error("the wait of an ended session is told nothing")
	}
	g.waits.sessionEnded(lives.id, 5)
	if len(waits[lives].done) != 0 {
		t.Error("an end before the wait began ends it")
	}
}
