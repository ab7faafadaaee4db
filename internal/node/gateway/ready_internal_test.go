package gateway

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// A node is ready as long as it leads, or knows for certain where the leader is.
func TestUnready(t *testing.T) {
	members := replica.Membership{Endpoints: []replica.Endpoint{{ID: 1, Client: "one:1"}, {ID: 2, Client: "two:1"}, {ID: 3}}}
	for why, st := range map[string]replica.Status{
		"":                          {ID: 1, Leader: 2, Current: true, Members: members},
		"there is no leader":        {ID: 1, Members: members},
		"catch up with node 2":      {ID: 1, Leader: 2, Members: members},
		"where clients find node 3": {ID: 1, Leader: 3, Current: true, Members: members},
		"where clients find node 4": {ID: 1, Leader: 4, Current: true, Members: members},
	} {
		if got := Unready(&st); !strings.Contains(got, why) || (got == "") != (why == "") {
			t.Errorf("%+v: %q, want %q", st, got, why)
		}
	}
	for _, serving := range []bool{true, false} {
		if got := Unready(&replica.Status{ID: 1, Leader: 1, Current: true, Leading: true, Serving: serving}); (got == "") != serving {
			t.Errorf("a leader that serves (%v): %q", serving, got)
		}
	}
}
