package gateway

import (
	"testing"

	"github.com/holdfast-io/holdfast/server"
)

// A call waits for a leader once: what it then asks of this node is not repeated for as long again.
func TestPatiently_WaitedBefore(t *testing.T) {
	g := alone(t)
	asked := 0
	err := g.patiently(waitedBefore(t.Context()), func() error {
		asked++
		return server.ErrNotLeader
	})
	if asked != 1 || err == nil {
		t.Errorf("the node was asked %d times: %v", asked, err)
	}
}
