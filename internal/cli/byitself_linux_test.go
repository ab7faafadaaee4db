package cli_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/services"
)

// What nodes do every so often they do without an order: here they compare their states.
func TestServe_ChecksByItself(t *testing.T) {
	nodes, _, hosts := group(t, t.TempDir(), 3)
	for _, n := range nodes {
		n.args = append(n.args, "--check-every", "1s")
	}
	runs(t, nodes...)
	url := "holdfast://" + strings.Join(hosts, ",")
	versions(t, url, 3, newest)
	status(t, url, "agrees at", 3)
}

// A node saves by itself, each file is a backup, and as many stay as it was told.
func TestServe_SavesByItself(t *testing.T) {
	addr, dir := services.Addr(t), t.TempDir()
	saved := filepath.Join(dir, "saved")
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, "d"), "--listen", addr, "--backup-dir", saved, "--backup-every", "1s", "--backup-keep", "2"}}
	runs(t, n)
	does(t, "holdfast://"+addr, "counter", "add", "n", "1")
	first, now := "", []string(nil)
	for began := time.Now(); len(now) != 2 || first == now[0] || first == now[1]; <-time.After(10 * time.Millisecond) {
		if now, _ = filepath.Glob(filepath.Join(saved, "holdfast-*.snap")); len(now) > 0 && first == "" {
			first = now[0]
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("after a minute there are %v, and first there was %s", now, first)
		}
	}
	_ = n.signal(syscall.SIGTERM) // so that none goes while it is read
	now, _ = filepath.Glob(filepath.Join(saved, "holdfast-*.snap"))
	for _, file := range now {
		if out := does(t, "holdfast://"+addr, "snapshot", "verify", file); len(now) != 2 || !strings.Contains(out, "is whole") {
			t.Errorf("of %d that it saved verify says %s", len(now), out)
		}
	}
}
