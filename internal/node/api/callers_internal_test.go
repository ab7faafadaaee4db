package api

import "testing"

// An address is one host in every spelling, a link-local one with its zone and without.
func TestHostOf(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:7420": "127.0.0.1", "[::ffff:127.0.0.1]:7420": "127.0.0.1", "[::1]:7420": "::1", "::1": "::1", "[::1]": "::1",
		"[fe80::1%eth0]:7420": "fe80::1", "[fe80::1]:7420": "fe80::1", "fe80::1%25eth0": "fe80::1", "Node.Example.:7420": "node.example",
	} {
		if got := hostOf(addr); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
}
