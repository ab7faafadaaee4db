package server_test

import (
	"context"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/server"
)

// A read whose caller has given up does not touch what the caller gave it; the
// race detector sees it if it does.
func TestLookAfterItsCaller(t *testing.T) {
	s := start(t, server.Config{Dir: t.TempDir()})
	if err := s.Look(within(t), func(*core.Machine, int64) {}); err != nil {
		t.Fatal(err)
	}
	for range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		seen := uint64(0)
		_ = s.Look(ctx, func(m *core.Machine, _ int64) { seen = m.Revision() })
		seen++
		if seen == 0 {
			t.Fatal("no revision is that high")
		}
	}
}
