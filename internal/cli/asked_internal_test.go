package cli

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/api"
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
