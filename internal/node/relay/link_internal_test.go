package relay

import (
	"testing"
	"time"
)

// A node closes a connection to the leader that nobody uses before the leader does.
func TestIdleConnectionsAreClosedHere(t *testing.T) {
	if d := Dialer(nil).transport().IdleConnTimeout; d <= 0 || d > 110*time.Second {
		t.Errorf("connections stay for %s, and the leader ends them after two minutes", d)
	}
}
