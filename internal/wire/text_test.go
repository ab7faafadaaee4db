package wire_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Whatever a client says of itself, others can read an answer that tells of it.
func TestAnyOwnerCanBeTold(t *testing.T) {
	claims := []driver.Claim{{Owner: "o\xff", Meta: "m\xff"}}
	for what, m := range map[string]proto.Message{
		"resource": wire.Resource(&driver.Resource{Holders: claims, Waiters: claims}),
		"session":  wire.SessionInfo(&driver.SessionInfo{Owner: "o\xff", Meta: "m\xff"}),
		"events":   &pb.WatchResponse{Events: wire.Events([]driver.Event{{Owner: "o\xff"}})},
	} {
		if _, err := proto.Marshal(m); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if c := wire.Claims(claims)[0]; c.GetOwner() != "o\uFFFD" || c.GetMeta() != "m\uFFFD" {
		t.Errorf("told as %q and %q", c.GetOwner(), c.GetMeta())
	}
}
