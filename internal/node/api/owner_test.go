package api_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Whatever a leader calls itself over a session's stream, others are told that it leads.
func TestLeader_AnyOwner(t *testing.T) {
	r := serve(t)
	f := &core.Frame{Session: core.SessionID{7}, Mark: 1, Commands: []core.Command{
		{Op: core.OpOpen, Namespace: "default", TTL: int64(time.Hour), Owner: "o\xff"},
		{Op: core.OpAcquire, Seq: 1, Wants: []core.Want{{Name: "chair", Kind: core.Election}}},
	}}
	if _, err := r.node.Submit(r.ctx, f); err != nil {
		t.Fatal(err)
	}
	l := must[*pb.LeaderResponse](t)(pb.NewElectionServiceClient(r.conn).Leader(r.ctx, &pb.LeaderRequest{Name: "chair"}))
	if !l.GetElected() || l.GetOwner() != "o\uFFFD" {
		t.Errorf("told: %v", l)
	}
}
