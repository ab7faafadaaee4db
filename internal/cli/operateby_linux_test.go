package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// begins is a handbook with a group of three, by its script.
func begins(t *testing.T) *handbook {
	h := openHandbook(t)
	begin := h.script("Begin")[0]
	for _, id := range []string{"1", "2", "3"} {
		h.serve(as(begin, h.net, "1", id))
	}
	does(t, h.url("1", "2", "3"), "counter", "add", "n", "41")
	return h
}

// A node with --no-replace that lost its disk waits, says the command, and votes under another number after it, by docs/operate.md.
func TestOperate_Replace(t *testing.T) {
	h := begins(t)
	_ = h.nodes["2"].signal(syscall.SIGKILL)
	if err := os.RemoveAll(filepath.Join(h.dir, "machine2")); err != nil {
		t.Fatal(err)
	}
	script := h.script("A lost disk")
	h.serve(script[0])
	h.nodes["2"].says.(lines).await(t, strings.Join(script[1][2:], " "))
	if out := h.command([]string{"--url", h.url("1", "3"), "member", "ls"}); !strings.Contains(out, "\n2 ") {
		t.Errorf("before the command the members are\n%s", out)
	}
	h.command(script[1]) // refused as long as the leader has not missed the node
	h.await("A lost disk", func(out string) bool {
		return strings.Count(out, "votes") == 3 && !strings.Contains(out, "\n2 ")
	}, "--url", h.url("1", "2", "3"), "member", "ls")
}

// A node hands over, is stopped, and starts again, by docs/operate.md; what an upgrade changes is shown by TestUpgrade_Rolling.
func TestOperate_Upgrade(t *testing.T) {
	h := begins(t)
	script := h.script("Upgrade")
	h.command(script[0])
	_ = h.nodes["3"].signal(syscall.SIGTERM)
	does(t, h.url("1", "2"), "counter", "add", "n", "1")
	h.serve(script[1])
	h.await("Upgrade", func(out string) bool {
		return strings.Count(out, "follows") == 2 && strings.Count(out, "leads") == 1
	}, script[2]...)
}

// A node tells that its disk is full as long as it has less room than --reserve, by docs/operate.md.
func TestOperate_FullDisk(t *testing.T) {
	h := openHandbook(t)
	dir, flags, fill, free := smallDisk(t)
	serve, says := h.script("A full disk")[0], make(lines, 1000)
	serve[slices.Index(serve, "--data")+1] = filepath.Join(dir, "data")
	if flags[1] != "16MiB" { // nothing may be mounted here: the reserve is what makes a disk small
		serve[slices.Index(serve, "--reserve")+1] = flags[1]
	}
	runs(t, &node{t: t, args: serve, says: says})
	status := h.script("A full disk")[1]
	h.await("room", func(out string) bool { return strings.Contains(out, "leads") && !strings.Contains(out, "disk is full") }, status...)
	fill()
	h.await("no room", func(out string) bool { return strings.Contains(out, "its disk is full") }, status...)
	says.await(t, "full")
	free()
	h.await("room again", func(out string) bool { return !strings.Contains(out, "disk is full") }, status...)
}
