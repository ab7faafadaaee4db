package wire_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/internal/wire"
)

// Every namespace comes back, in metadata that gRPC carries.
func TestNamespaceMetadata(t *testing.T) {
	for _, ns := range []string{"", "team", "a b", "~!", "équipe", "チーム", "a\x00b", "\xff"} {
		md := metadata.Pairs(wire.NamespaceMetadata(ns)...)
		if got := strings.Join(wire.NamespacesOf(md), " and "); got != ns {
			t.Errorf("%q comes back as %q", ns, got)
		}
		for i := range ns {
			plain := md.Get("holdfast-namespace")
			if (ns[i] < ' ' || ns[i] > '~') && (len(plain) != 1 || plain[0] != "holdfast.bin") {
				t.Errorf("%q: a server that does not know the other form reads %q", ns, plain)
			}
		}
	}
}
