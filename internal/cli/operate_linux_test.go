package cli_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// handbook is docs/operate.md, with loopback addresses and directories of a test.
type handbook struct {
	t     *testing.T
	dir   string
	text  string
	net   string // what addresses begin with, instead of 10.0.0.
	nodes map[string]*node
}

func openHandbook(t *testing.T) *handbook {
	t.Helper()
	b, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	h := &handbook{t: t, dir: t.TempDir(), net: fmt.Sprintf("127.%d.%d.", 1+rand.IntN(250), rand.IntN(250)), nodes: map[string]*node{}}
	text := strings.ReplaceAll(strings.ReplaceAll(string(b), "\\\n", " "), "10.0.0.", h.net)
	members := regexp.MustCompile(`--members (1=\S+)`).FindStringSubmatch(text)[1]
	h.text = strings.ReplaceAll(text, "--members …", "--members "+members)
	return h
}

// script are the commands of a section, each a list of words. Nodes on loopback addresses
// need no certificates.
func (h *handbook) script(section string) (commands [][]string) {
	h.t.Helper()
	_, rest, ok := strings.Cut(h.text, "\n## "+section+"\n")
	if !ok {
		h.t.Fatalf("there is no section %q", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(rest, -1) {
		for line := range strings.Lines(block[1]) {
			line = regexp.MustCompile(`--peer-(cert|key|ca) \S+`).ReplaceAllString(line, "")
			commands = append(commands, strings.Fields(line)[1:])
		}
	}
	if len(commands) == 0 {
		h.t.Fatalf("section %q has no commands", section)
	}
	return commands
}

// printed is the command that a section names in its text, by its first words.
func (h *handbook) printed(section, begin string) []string {
	h.t.Helper()
	_, rest, _ := strings.Cut(h.text, "\n## "+section+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	_, rest, ok := strings.Cut(rest, "`holdfast "+begin)
	if !ok {
		h.t.Fatalf("section %q names no command holdfast %s", section, begin)
	}
	rest, _, _ = strings.Cut(rest, "`")
	return strings.Fields(begin + rest)
}

// await asks until the answer to a command, which may fail meanwhile, is right.
func (h *handbook) await(what string, right func(out string) bool, args ...string) {
	h.t.Helper()
	for began := time.Now(); ; <-time.After(50 * time.Millisecond) {
		out, _ := program(h.t, h.dir, args...).CombinedOutput()
		if right(string(out)) {
			return
		}
		if time.Since(began) > time.Minute {
			h.t.Fatalf("%s: holdfast %s says\n%s", what, strings.Join(args, " "), out)
		}
	}
}

// checks has the nodes compare their states.
func (h *handbook) checks(url string) {
	h.t.Helper()
	h.command(append([]string{"--url", url}, h.printed("State check", "member check")...))
	h.await("State check", func(out string) bool { return strings.Count(out, "agrees at ") == 3 }, "--url", url, "status")
}

// losesDisk starts a node on an empty directory by its usual command line: nobody has to do
// anything.
func (h *handbook) losesDisk(id, url string) {
	h.t.Helper()
	n := h.nodes[id]
	_ = n.signal(syscall.SIGKILL)
	if err := os.RemoveAll(filepath.Join(h.dir, "machine"+id)); err != nil {
		h.t.Fatal(err)
	}
	n.start()
	h.await("A lost disk", func(out string) bool {
		return strings.Count(out, "votes") == 3 && !strings.Contains(out, "\n"+id+" ")
	}, "--url", url, "member", "ls")
	replace := h.script("A lost disk")[1]
	if out, err := program(h.t, h.dir, append([]string{"--url", url}, replace[2:]...)...).CombinedOutput(); err == nil {
		h.t.Errorf("a number that is gone was replaced: %s", out)
	}
}

// losesMajority begins anew with what is left on one machine.
func (h *handbook) losesMajority(id, host string) (url string) {
	h.t.Helper()
	for _, n := range h.nodes {
		_ = n.signal(syscall.SIGKILL)
	}
	args := h.placed(h.script("A lost majority")[0], "machine"+id)
	h.command(args)
	h.serve([]string{"serve", "--data", args[len(args)-3], "--listen", h.net + host + ":7420"})
	return h.url(host)
}

// runs does what a section says, and returns what its commands say.
func (h *handbook) runs(section string) (said []string) {
	h.t.Helper()
	for _, args := range h.script(section) {
		if args[0] == "serve" {
			h.serve(args)
			continue
		}
		said = append(said, h.command(args))
	}
	return said
}

// command runs one until it succeeds: some are refused until a node has caught up or a leader
// is there.
func (h *handbook) command(args []string) string {
	h.t.Helper()
	for began := time.Now(); ; <-time.After(50 * time.Millisecond) {
		cmd := exec.CommandContext(h.t.Context(), "holdfast", h.placed(args, "")...)
		cmd.Dir, cmd.Env = h.dir, append(os.Environ(), "XDG_CONFIG_HOME="+h.dir)
		out, err := cmd.CombinedOutput()
		if err == nil {
			return string(out)
		}
		if time.Since(began) > time.Minute {
			h.t.Fatalf("holdfast %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
}

// placed are the words of a command in the directories of the test; each node has its own
// machine.
func (h *handbook) placed(args []string, machine string) (out []string) {
	for _, a := range args {
		out = append(out, strings.Replace(a, "/var/lib/", filepath.Join(h.dir, machine)+"/", 1))
	}
	return out
}

// serve starts a node as a command says.
func (h *handbook) serve(args []string) {
	h.t.Helper()
	id := "new"
	for i, a := range args {
		if a == "--id" {
			id = args[i+1]
		}
	}
	machine := "machine" + id
	if id == "new" {
		machine = ""
	}
	n := &node{t: h.t, args: h.placed(args, machine), says: make(lines, 1000)}
	n.start()
	h.nodes[id] = n
	h.t.Cleanup(func() { _ = n.cmd.Process.Kill(); _ = n.cmd.Wait() })
}

// url is that of nodes by the last part of their addresses.
func (h *handbook) url(hosts ...string) string {
	for i := range hosts {
		hosts[i] = h.net + hosts[i]
	}
	return "holdfast://" + strings.Join(hosts, ",")
}

// as is a serve command of one machine, for another.
func as(args []string, net, from, to string) (out []string) {
	for _, a := range args {
		if !strings.Contains(a, "=") { // not the members
			a = strings.Replace(a, net+from+":", net+to+":", 1)
		}
		if len(out) > 0 && out[len(out)-1] == "--id" {
			a = to
		}
		out = append(out, a)
	}
	return out
}

// A group lives by docs/operate.md: it begins, grows, shrinks, moves, stands a paused
// machine, compares its states, replaces a lost disk, is saved and restored, and begins anew
// after the loss of a majority, by the commands that stand there.
func TestOperate(t *testing.T) {
	h := openHandbook(t)
	begin := h.script("Begin")[0]
	for _, id := range []string{"1", "2", "3"} {
		h.serve(as(begin, h.net, "1", id))
	}
	all := h.url("1", "2", "3")
	does(t, all, "counter", "add", "n", "41")

	h.runs("Grow")
	if out := h.command([]string{"--url", all, "member", "ls"}); strings.Count(out, "votes") != 4 {
		t.Fatalf("after Grow the members are\n%s", out)
	}

	h.runs("Shrink")
	h.nodes["2"].says.(lines).await(t, "never used again")

	_ = h.nodes["3"].signal(syscall.SIGTERM)
	h.runs("Moved addresses")
	moved := h.url("1", "4", "9")
	for out := ""; strings.Count(out, "leads") != 1 || strings.Count(out, "follows") != 2; {
		b, _ := program(t, h.dir, "--url", moved, "status").CombinedOutput() // fails until all answer
		out = string(b)
	}

	hosts := []string{h.net + "1:7420", h.net + "4:7420", h.net + "9:7420"}
	paused := h.nodes[[]string{"1", "4", "3"}[leaderOf(t, moved, hosts)]].cmd.Process
	signal(t, paused.Pid, syscall.SIGSTOP)
	if got := h.command([]string{"--url", moved, "counter", "add", "n", "1"}); strings.TrimSpace(got) != "42" {
		t.Errorf("while the leader is paused the counter is %s", got)
	}
	signal(t, paused.Pid, syscall.SIGCONT)

	h.checks(moved)
	h.losesDisk("4", moved)
	for leaderOf(t, moved, hosts) != 0 { // the node that Backup asks may be behind, if it was the paused one
		h.command([]string{"--url", moved, "member", "lead", "1"})
	}
	if said := h.runs("Backup"); len(said) != 2 || !strings.Contains(said[1], "is whole") || !strings.Contains(said[1], "revision") {
		t.Errorf("Backup says %q", said)
	}
	h.runs("Restore")
	if got := does(t, h.url("5"), "counter", "get", "n"); got != "42" {
		t.Errorf("the restored counter is %s, want 42", got)
	}
	if got := does(t, h.losesMajority("1", "6"), "counter", "get", "n"); got != "42" {
		t.Errorf("what is left of a lost majority has the counter at %s, want 42", got)
	}
}
