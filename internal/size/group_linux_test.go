package size

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// glance is the pause between two looks at another process, which sends no event.
const glance = 5 * time.Millisecond

// patience is how long anything may take before a trial gives up.
const patience = 5 * time.Minute

// group is one node, or several, each a process with a directory on the disk.
type group struct {
	tb    testing.TB
	nodes []*services.Process
	hosts []string
}

// start starts a group and waits until it has a leader.
func start(tb testing.TB, n int, flags ...string) *group {
	tb.Helper()
	g, dir := &group{tb: tb}, tb.TempDir()
	var peers, members []string
	for i := range n {
		g.hosts, peers = append(g.hosts, services.Addr(tb)), append(peers, services.Addr(tb))
		members = append(members, fmt.Sprintf("%d=%s/%s", i+1, peers[i], g.hosts[i]))
	}
	for i := range n {
		args := append([]string{"serve", "--data", filepath.Join(dir, strconv.Itoa(i+1)), "--listen", g.hosts[i]}, flags...)
		if n > 1 {
			args = append(args, "--id", strconv.Itoa(i+1), "--peer", peers[i], "--members", strings.Join(members, ","))
		}
		g.nodes = append(g.nodes, services.Start(tb, "node", g.hosts[i], func(string) *exec.Cmd { return played(tb, nodeRole, args...) }))
	}
	g.leader()
	return g
}

// leastTTL is the least that the group takes.
func (g *group) leastTTL() time.Duration {
	if len(g.nodes) == 1 {
		return time.Second
	}
	return 5 * time.Second
}

func (g *group) url() string { return "holdfast://" + strings.Join(g.hosts, ",") }

// space is a client of its own, which has reached the leader.
func (g *group) space() *holdfast.Space {
	g.tb.Helper()
	return open(g.tb, g.url())
}

func open(tb testing.TB, url string) *holdfast.Space {
	tb.Helper()
	s, err := holdfast.Open(tb.Context(), url)
	done(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	done(tb, s.Ping(tb.Context()))
	return s
}

// each does something with all nodes at once.
func (g *group) each(do func(*services.Process)) {
	var all sync.WaitGroup
	for _, n := range g.nodes {
		all.Go(func() { do(n) })
	}
	all.Wait()
}

// leader is the place of the node that leads, waited for.
func (g *group) leader() (at int) {
	g.tb.Helper()
	await(g.tb, "no node leads", func() bool {
		for at = range g.hosts {
			if g.metric(at, "holdfast_leading") == 1 {
				return true
			}
		}
		return false
	})
	return at
}

// term is how many elections there were, and a few: the greatest number of one.
func (g *group) term() (term float64) {
	for i := range g.hosts {
		term = max(term, g.metric(i, "holdfast_raft_term"))
	}
	return term
}

// metric is what a node says of itself; -1: it does not answer.
func (g *group) metric(i int, name string) float64 {
	answer, err := http.Get("http://" + g.hosts[i] + "/metrics")
	if err != nil {
		return -1
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body) // what is not there is not found
	return number(string(text), "\n"+name+" ", -1)
}

// process is a figure of a node that the kernel keeps, of a file of /proc/pid: VmRSS of status
// in KiB, write_bytes of io, and so on.
func (g *group) process(i int, file, name string) float64 {
	g.tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", g.nodes[i].Pid(), file))
	done(g.tb, err)
	v := number("\n"+string(text), "\n"+name+":", -1)
	if v < 0 {
		g.tb.Fatalf("%s of a process has no %s", file, name)
	}
	return v
}

// used is the processor time that a node has used since it was started.
func (g *group) used(i int) time.Duration {
	g.tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.nodes[i].Pid()))
	done(g.tb, err)
	const user, system, jiffy = 11, 12, 10 * time.Millisecond // counted from the state on
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	u, err1 := strconv.Atoi(f[user])
	s, err2 := strconv.Atoi(f[system])
	done(g.tb, cmp.Or(err1, err2))
	return time.Duration(u+s) * jiffy
}

// forgetPeak lets VmHWM of a node begin anew.
func (g *group) forgetPeak(i int) {
	g.tb.Helper()
	const peak = "5"
	done(g.tb, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", g.nodes[i].Pid()), []byte(peak), 0))
}

// number is the one that follows a word in a text.
func number(text, word string, absent float64) (v float64) {
	_, rest, ok := strings.Cut(text, word)
	if _, err := fmt.Sscan(rest, &v); !ok || err != nil {
		return absent
	}
	return v
}

// await looks until something is so.
func await(tb testing.TB, otherwise string, so func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !so(); <-time.After(glance) {
		if time.Now().After(end) {
			tb.Fatal(otherwise)
		}
	}
}

// again kills all nodes at once and starts them again.
func (g *group) again() (began time.Time) {
	g.tb.Helper()
	g.each((*services.Process).Kill)
	began = time.Now()
	g.each((*services.Process).Restart)
	return began
}
