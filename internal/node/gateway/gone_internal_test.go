package gateway

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
)

// gone is the context of a caller that goes in the moment of its grant: calls with it
// are answered, and then it turns out to be over.
type gone struct{ context.Context }

func (gone) Err() error { return context.Canceled }

// A grant that comes when its caller has gone is given back: nobody else would.
func TestGrant_CallerHasGone(t *testing.T) {
	g := alone(t)
	ctx := context.Background() // never done, so that only Err tells
	for name, lease := range map[string]int64{"on a lease of its own": 0, "on a lease": 7} {
		open := core.Command{Op: core.OpOpen, Namespace: "default", TTL: int64(time.Hour)}
		l := g.newLease("default", cmp.Or(lease, holdLease+1), open)
		w := &holdRequest{want: core.Want{Name: "x", Kind: core.Mutex}, lease: lease}
		f, err := l.numbered([]core.Command{w.command()})
		if err != nil {
			t.Fatal(err)
		}
		seq := f.Commands[1].Seq
		_, results, err := l.send(ctx, &f, 1)
		if err != nil || results[0].Code != core.CodeOK {
			t.Fatalf("%s: %v %v", name, results, err)
		}
		if lease != 0 {
			l.open = nil // it is there
		}
		row := core.Push{Seq: seq, State: core.ClaimGranted, Token: results[0].Token}
		if h, err := l.granted(gone{ctx}, w, seq, outcome{row: row}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the caller that has gone gets %+v, %v", name, h, err)
		}
		g.work.wait(ctx)
		if err := g.s.Look(t.Context(), func(m *core.Machine, _ int64) {
			if i, _ := m.Inspect("default", "x"); len(i.Holders) > 0 {
				t.Errorf("%s: the grant is kept", name)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// A grant on a lease that ends before its caller is told is none.
func TestGrant_LeaseHasEnded(t *testing.T) {
	g := alone(t)
	taken(t, g)
	l, err := g.lease(t.Context(), 41)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.EndLease(t.Context(), 41); err != nil {
		t.Fatal(err)
	}
	w := &holdRequest{want: core.Want{Name: "y", Kind: core.Mutex}, lease: 41}
	if h, err := l.granted(t.Context(), w, 1, outcome{row: core.Push{Seq: 1, State: core.ClaimGranted, Token: 7}}); !errors.Is(err, driver.ErrLost) {
		t.Errorf("the call gets %+v, %v", h, err)
	}
}
