//go:build unix

package services_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/internal/services/programs"
)

// Any program can be started; it serves when Start returns, and is gone with its
// directory when the test is.
func TestStart(t *testing.T) {
	path, err := programs.Redis.Ensure(t.Context())
	must(t, path, err)
	var dir string
	t.Run("running", func(t *testing.T) {
		addr := services.Addr(t)
		_, port, _ := strings.Cut(addr, ":")
		p := services.Start(t, "some", addr, func(d string) *exec.Cmd {
			dir = d
			return exec.Command(path, "--port", port, "--dir", d, "--save", "", "--dbfilename", "x")
		})
		if got := do(t, redisClient(t, "redis://"+p.Addr()), "ping"); got != "PONG" {
			t.Errorf("it answers %q", got)
		}
		if _, err := os.Stat(filepath.Join(dir, "log")); err != nil || p.Pid() == 0 {
			t.Errorf("process %d keeps no log: %v", p.Pid(), err)
		}
	})
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
}
