package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/server"
)

// A follower is not ready if it does not know where clients find the leader: it could answer no call.
func TestReady_LeaderWithoutAddress(t *testing.T) {
	var rigs []*rig
	founders := []server.Member{{ID: 1, Peer: services.Addr(t)}, {ID: 2, Peer: services.Addr(t)}}
	for _, m := range founders {
		node, err := server.New(server.Config{Dir: t.TempDir(), ID: m.ID, Founders: founders, Listen: m.Peer})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { node.Close() })
		rigs = append(rigs, serveNode(t, node, api.Config{}))
	}
	at := leader(t, rigs)
	if code, body := rigs[at].get("http://" + rigs[at].addr + "/readyz"); code != http.StatusOK {
		t.Errorf("the leader answers %d, %s", code, body)
	}
	follower := rigs[1-at]
	for l, changed := follower.node.Leader(); l.ID == 0; l, changed = follower.node.Leader() {
		<-changed
	}
	for { // it has yet to catch up, for a moment
		code, body := follower.get("http://" + follower.addr + "/readyz")
		if code != http.StatusServiceUnavailable || !strings.Contains(body, `"ready":false`) {
			t.Fatalf("the follower answers %d, %s", code, body)
		}
		if strings.Contains(body, "where clients find node") {
			return
		}
	}
}
