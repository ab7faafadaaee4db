package remote_test

import (
	"os"
	"syscall"
	"testing"
)

// shelf is a directory for a node, in memory where there is room. What is tested
// here is the client: a disk that others keep busy for seconds at a time would
// keep a group from electing, however patient its nodes are.
func shelf(t *testing.T) string {
	t.Helper()
	const memory, room = "/dev/shm", 1 << 30
	var fs syscall.Statfs_t
	if syscall.Statfs(memory, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "holdfast-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
