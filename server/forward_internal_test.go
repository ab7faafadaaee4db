package server

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// A refusal that comes through another node has the kind that the leader gave it.
func TestEveryKindIsPassedOn(t *testing.T) {
	for code := core.CodeOK; code < 64; code++ {
		kind := convert.Refusal(code, "").Kind
		if kind == nil {
			continue
		}
		r := reply{Refused: "no", Kind: kind.Error(), NotDone: true}
		if err := r.err(); !errors.Is(err, kind) {
			t.Errorf("code %d: %v is passed on as %v", code, kind, err)
		}
	}
}

// A leader that does not serve yet takes no order to hand over: it could do nothing about it,
// and its operator would be told that it was asked.
func TestHandOver_NotServing(t *testing.T) {
	node, err := replica.New(replica.Config{ID: 1}, replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(node, time.Second, 0)
	for step := range 10 {
		st, err := node.Status(), l.handTo(1)
		if st.Serving {
			if err != nil {
				t.Errorf("a leader that serves says %v", err)
			}
			return
		}
		if !errors.Is(err, ErrNotLeader) {
			t.Errorf("step %d: a node that leads: %v, and does not serve, says %v", step, st.Leading, err)
		}
		for _, w := range node.Output().Writes {
			node.Written(0, w.ID)
		}
	}
	t.Error("the node does not begin to serve")
}
