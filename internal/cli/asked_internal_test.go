package cli

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/internal/wire"
	"github.com/holdfast-io/holdfast/server"
)

// served is the address for clients of a node that leads its group of one in this process until the test ends.
func served(t *testing.T, cfg server.Config) string {
	t.Helper()
	ln := bound(t)
	cfg.Dir, cfg.Tick, cfg.Client = t.TempDir(), 20*time.Millisecond, ln.Addr().String()
	node, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- api.Serve(ctx, ln, api.New(node), api.Config{}) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("it served until %v", err)
		}
		node.Close()
	})
	for st, err := node.Status(t.Context()); !st.Serving; st, err = node.Status(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	return cfg.Client
}

// A node that says that it has no room for a snapshot is not the last that a backup is asked of, and nothing that it has
// sent is in the backup.
func TestSnapshotSave_NextNode(t *testing.T) {
	full := &operated{err: wire.Status(driver.Errorf("back up", "", driver.ErrUnavailable, "the disk of this node has no room for a snapshot")).Err()}
	url, file := "holdfast://"+full.start(t)+","+served(t, server.Config{}), filepath.Join(t.TempDir(), "new")
	for _, command := range []string{"save", "verify"} {
		if code, said := runApp(t, t.TempDir(), "--url", url, "snapshot", command, file); code != 0 || full.orders != 1 {
			t.Errorf("snapshot %s: %d, the first node was asked %d times: %s", command, code, full.orders, said)
		}
	}
}

// A number or an address that another member has is refused with what to do, whichever of the two nodes was meant: by
// the words in which a real node refuses each.
func TestMemberAdd_Taken(t *testing.T) {
	peer := services.Addr(t)
	client := served(t, server.Config{ID: 1, Listen: peer})
	order := func(command string) (code int, said string) {
		return runApp(t, t.TempDir(), append([]string{"--url", "holdfast://" + client}, strings.Fields(command)...)...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for code, said := order("member add 2 10.0.0.2:7421 10.0.0.2:7420"); code != 0; code, said = order("member add 2 10.0.0.2:7421 10.0.0.2:7420") {
		if ctx.Err() != nil {
			t.Fatalf("there is no second member: %s", said)
		}
	}
	for command, refusal := range map[string]string{
		"add 1 10.0.0.3:7421 10.0.0.3:7420":    "node 1 is a member",
		"add 3 " + peer + " 10.0.0.3:7420":     "node 1 is at",
		"add 3 10.0.0.3:7421 " + client:        "clients find node 1 at",
		"update 2 " + peer + " 10.0.0.2:7420":  "node 1 is at",
		"update 2 10.0.0.2:7421 " + client:     "clients find node 1 at",
		"replace 2 " + peer + " 10.0.0.2:7420": "node 1 is at",
		"replace 2 10.0.0.2:7421 " + client:    "clients find node 1 at",
	} {
		code, said := order("member " + command)
		for _, advice := range []string{refusal, "member ls", "member update", "member replace", "member remove"} {
			if code != exitUsage || !strings.Contains(said, advice) {
				t.Errorf("%s: %d, without %s: %s", command, code, advice, said)
			}
		}
	}
}
