package gather_test

import (
	"os"
	"testing"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
)

// A working directory that was deleted tells nothing, neither of what would be in it nor of itself, also when there is
// another at its path.
func TestFiles_WorkingDirectoryDeleted(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	nothing := func() {
		t.Helper()
		for _, c := range []gather.Config{{Commands: &gather.Commands{}}, {Dir: ".", Commands: &gather.Commands{Dir: "."}}} {
			outcomes(t, gather.New(c), map[guard.Outcome][]guard.Condition{
				guard.Error: {guard.FileNotExists("freeze"), guard.FileExists("freeze"), guard.FileExists("."), guard.Not(guard.SessionAlive("pidfile:web.pid")),
					guard.BranchNotExists("freeze"), guard.CustomCheck("true", "")},
				guard.Passed: {guard.FileNotExists(dir + "/freeze")},
			})
		}
	}
	ok(t, os.Remove(dir))
	nothing()
	ok(t, os.Mkdir(dir, 0o700))
	nothing()
}
