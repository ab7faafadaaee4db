package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// A call that was sent and given up, and is sent again when there is a link, has the values that it
// was given: its caller has long used its buffers for something else.
func TestGivenUpCallKeepsItsValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFar(t, 1)
		f.mend()
		kv := f.s.KV()
		if _, err := kv.Put(t.Context(), "cond", []byte("good")); err != nil {
			t.Fatal(err)
		}
		leader, err := f.s.Election("e").Campaign(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		do := map[string]func(ctx context.Context, value []byte) error{
			"put": func(ctx context.Context, value []byte) error {
				_, err := kv.Put(ctx, "put", value)
				return err
			},
			"else": func(ctx context.Context, value []byte) error {
				_, err := kv.Txn(ctx, holdfast.Txn{If: []holdfast.Compare{holdfast.Absent("cond")}, Else: []holdfast.Op{holdfast.PutOp("else", value)}})
				return err
			},
			"if": func(ctx context.Context, value []byte) error {
				_, err := kv.Txn(ctx, holdfast.Txn{If: []holdfast.Compare{holdfast.ValueIs("cond", value)}, Then: []holdfast.Op{holdfast.PutOp("if", []byte("good"))}})
				return err
			},
			"proclaim": leader.Proclaim,
		}
		for what, do := range do {
			f.loses(t, what, do)
		}
		for _, key := range []string{"put", "else", "if"} {
			if e, err := kv.Get(t.Context(), key); err != nil || string(e.Value) != "good" {
				t.Errorf("%s: %q, %v", key, e.Value, err)
			}
		}
		if at, ok := f.m.Inspect("", "e"); !ok || string(at.Holders[0].Value) != "good" {
			t.Errorf("proclaimed: %+v", at.Holders)
		}
	})
}

// loses has a call's first message lost and its caller leave, use its buffer again, and the
// message sent again.
func (f *far) loses(t *testing.T, what string, do func(ctx context.Context, value []byte) error) {
	f.mu.Lock()
	l := f.link
	f.mu.Unlock()
	busy := session.Message{Kind: session.KindAttach, Session: core.SessionID{1}, Stream: 1}
	l.in <- session.AppendMessage(nil, &busy) // what comes after it is lost with the link
	ctx, cancel := context.WithTimeout(t.Context(), latency/2)
	defer cancel()
	value := []byte("good")
	if err := do(ctx, value); !errors.Is(err, context.DeadlineExceeded) || holdfast.NotDone(err) {
		t.Errorf("%s: %v", what, err)
	}
	copy(value, "evil")
	for len(l.in) > 0 {
		<-l.in
	}
	f.cut()
	f.mend()
	time.Sleep(time.Second)
}
