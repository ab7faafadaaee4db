package server_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/server"
)

// Whoever keeps a session by hand opens, renews and uses it without a stream.
func TestCallsWithoutAStream(t *testing.T) {
	s := start(t, server.Config{Dir: t.TempDir()})
	id := core.SessionID{7}
	r := submit(t, s, &core.Frame{Session: id, Mark: 1, Commands: []core.Command{
		{Op: core.OpOpen, TTL: int64(time.Minute)},
		{Op: core.OpCount, Seq: 1, Name: "n", Count: core.CountAdd, A: 5},
	}})
	if len(r.Results) != 2 || r.Results[1].Number != 5 || r.Deadline == 0 {
		t.Fatalf("answered %+v", r)
	}
	n, err := s.Renew(t.Context(), id, 2*time.Minute)
	if err != nil || n.Deadline < r.Deadline+int64(50*time.Second) {
		t.Errorf("renewed to %d after %d, %v", n.Deadline, r.Deadline, err)
	}
	if n, err := s.Renew(t.Context(), core.SessionID{8}, 0); err != nil || n.Deadline != 0 {
		t.Errorf("an unknown session was renewed: %+v, %v", n, err)
	}
	_, err = s.Submit(t.Context(), &core.Frame{Session: id, Commands: []core.Command{{Op: core.OpOpen, TTL: 1}}})
	if e, ok := errors.AsType[*driver.Error](err); !ok || e.Outcome != driver.NotDone {
		t.Errorf("a TTL of 1 ns: %v", err)
	}
}

func submit(t *testing.T, s *server.Server, f *core.Frame) core.Reply {
	t.Helper()
	for {
		r, err := s.Submit(t.Context(), f)
		if errors.Is(err, driver.ErrUnavailable) {
			continue // not leading yet
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}
