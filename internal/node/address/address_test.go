package address_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/address"
)

func ExampleSame() {
	fmt.Println(address.Same("localhost:7421", "127.0.0.1:7421"))
	fmt.Println(address.Same("10.0.0.1:7421", "10.0.0.1:7420"))
	// Output:
	// true
	// false
}

// Spellings of one address are the same, and no two of different groups are.
func TestSame(t *testing.T) {
	groups := [][]string{
		{"localhost:7421", "127.0.0.1:7421", "LocalHost:7421", "localhost.:7421", "[::ffff:127.0.0.1]:7421", "127.0.0.1:07421"},
		{"127.0.0.1:7420"},
		{"[::1]:7421", "[0:0:0:0:0:0:0:1]:7421", "[0::1]:7421"},
		{"[fe80::A%eth0]:7421", "[FE80:0::a%eth0]:7421"},
		{"node1:7421", "NODE1:7421", "node1.:7421"},
		{"node1.example.com:7421"},
		{"10.0.0.1:7421"},
		{"10.0.0.1"},
		{"::1:7421"},
		{"0.0.0.0:0", "0.0.0.0:0"},
	}
	for i, a := range groups {
		for j, b := range groups {
			for _, x := range a {
				for _, y := range b {
					if got := address.Same(x, y); got != (i == j) {
						t.Errorf("%s and %s are the same: %v", x, y, got)
					}
				}
			}
		}
	}
	if address.Same("", "") {
		t.Error("no address is the same as none")
	}
}

// An address has one canonical spelling, which is its own.
func TestCanonical(t *testing.T) {
	for addr, want := range map[string]string{
		"": "", "Peer-2": "peer-2", "LOCALHOST:1": "127.0.0.1:1", "[::FFFF:10.0.0.1]:7": "10.0.0.1:7", "[2001:DB8::0:1]:7421": "[2001:db8::1]:7421", "Host.:http": "host:http", "a:0": "a:0",
	} {
		if got := address.Canonical(addr); got != want || address.Canonical(got) != got {
			t.Errorf("%q is %q, and that %q; want %q", addr, got, address.Canonical(got), want)
		}
	}
}

// Others find a node at a host and a port, and nowhere else.
func TestFindable(t *testing.T) {
	for _, addr := range []string{"10.0.0.1:7421", "node1:7421", "localhost:7421", "[::1]:7421", "[fe80::1%eth0]:7421", "a:1", "a:65535", "a:https", "node.1a:7421", "0b1:7421", "1.example:7421", "10.0.0.1.:7421", "0177.example:1", "[::ffff:10.0.0.1]:1", "my_node-1.example:7421", "bücher.example:7421", "a:my-service"} {
		if !address.Findable(addr) || address.Anywhere(addr) {
			t.Errorf("%s is findable: %v, anywhere: %v", addr, address.Findable(addr), address.Anywhere(addr))
		}
	}
	for _, addr := range []string{":7421", "0.0.0.0:7421", "[::]:7421", "[::0]:7421", "0:7421", "[0:0:0:0:0:0:0:0]:7421", "[::ffff:0.0.0.0]:7421", "[]:7421"} {
		if address.Findable(addr) || !address.Anywhere(addr) {
			t.Errorf("%s is findable: %v, anywhere: %v", addr, address.Findable(addr), address.Anywhere(addr))
		}
	}
	for _, addr := range []string{"", "node1", "node1:", "10.0.0.1", "::1", "fe80::1", "::1:7421", "[::1]", "[::1", "::", "a:65536", "a:99999999999999999999999",
		"a:0", "127.0.0.1:0", "a:00", "0177.0.0.1:7421", "127.1:7421", "2130706433:7421", "0x7f.0.0.0x1:7421", "10.0.0.08:7421", "1.2.3.400:7421", "1.2.3.4.5:7421", "a.99999999999999999999999:7421",
		"a:+7421", "a:-7421", "a:7421/b:7420", "http://a:7421", "a/b:7421", "a b:7421", "a\nb:7421", "a:7421\n", "a: 7421", "*:7421", "a,b:7421", "1=a:7421", "u@a:7421", "a?b:7421"} {
		if address.Findable(addr) || address.Anywhere(addr) {
			t.Errorf("%q is findable: %v, anywhere: %v", addr, address.Findable(addr), address.Anywhere(addr))
		}
	}
}
