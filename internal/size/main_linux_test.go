package size

import (
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/cli"
	"github.com/holdfast-io/holdfast/internal/services"
)

// What a process of this test binary is, by the name it is started under.
const (
	nodeRole      = "holdfast"
	bystanderRole = "holdfast-bystander"
)

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case nodeRole:
		os.Exit(cli.Main(os.Args[1:]))
	case bystanderRole:
		os.Exit(bystand(os.Args[1], os.Args[2]))
	}
	goleak.VerifyTestMain(services.Main(m))
}

// played is this binary in a role. It finds no configuration file, and does not sleep when it
// ends, as programs with the race detector do.
func played(tb testing.TB, role string, args ...string) *exec.Cmd {
	tb.Helper()
	self, err := os.Executable()
	done(tb, err)
	return &exec.Cmd{Path: self, Args: append([]string{role}, args...), Env: append(os.Environ(), "XDG_CONFIG_HOME="+tb.TempDir(), "GORACE=atexit_sleep_ms=0")}
}

func done(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
