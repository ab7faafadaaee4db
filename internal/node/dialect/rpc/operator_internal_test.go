package rpc

import (
	"net"
	"testing"
)

// Callers on the machine of a node are those that come from a loopback address, or from the address that they call.
func TestSameMachine(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 4711} }
	for _, c := range []struct {
		remote, local net.Addr
		same          bool
	}{
		{tcp("127.0.0.1"), tcp("127.0.0.1"), true},
		{tcp("127.9.9.9"), tcp("10.0.0.1"), true},
		{tcp("::1"), tcp("::1"), true},
		{tcp("10.0.0.1"), tcp("10.0.0.1"), true}, // the node's own
		{tcp("::ffff:10.0.0.1"), tcp("10.0.0.1"), true},
		{tcp("2001:db8::1"), tcp("2001:db8::1"), true},
		{&net.UnixAddr{Net: "unix"}, nil, true},
		{tcp("10.0.0.2"), tcp("10.0.0.1"), false},
		{tcp("10.0.0.2"), tcp("127.0.0.1"), false},
		{tcp("2001:db8::2"), tcp("2001:db8::1"), false},
		{tcp("10.0.0.1"), nil, false},
		{nil, tcp("10.0.0.1"), false},
	} {
		if got := SameMachine(c.remote, c.local); got != c.same {
			t.Errorf("from %v to %v: %v, want %v", c.remote, c.local, got, c.same)
		}
	}
}
