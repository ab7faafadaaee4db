package servers

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/contest"
	"github.com/holdfast-io/holdfast/internal/services"
)

var (
	rounds = flag.Int("bench.rounds", 2, "how often each workload is run")
	scaled = flag.Float64("bench.scale", 0.1, "how long each turn is, to what the workload says, and how many idle sessions there are")
	into   = flag.String("bench.into", "", "the document that gets the tables; the chart goes beside it")
)

func TestMain(m *testing.M) { os.Exit(services.Main(m).Run()) }

const (
	heading = "## Beside other servers"
	picture = "benchmarks-server.svg"
)

// TestServers runs one workload after the other, each with servers of its own
// that nobody else keeps busy. By default it only shows that they run.
func TestServers(t *testing.T) {
	programs := newBuilt(t)
	var r results
	t.Run(idleSessions, func(t *testing.T) { r.limits = idle(t, programs.holdfast(), *scaled) })
	complete := r.limits != nil
	for _, p := range plans() {
		before := len(r.work)
		t.Run(p.what, func(t *testing.T) {
			w := p.start(t, programs)
			compete(t, w)
			r.work, r.verdicts = append(r.work, w), append(r.verdicts, p.judge(w)...)
		})
		complete = complete && len(r.work) > before
	}
	text := r.report()
	t.Log("\n" + text)
	if *into != "" && complete {
		publish(t, text, chart(r.verdicts))
	}
}

// results are what has been seen.
type results struct {
	work     []*workload
	verdicts []verdict
	limits   []limit
}

// compete has everybody warm up, and then run round by round.
func compete(t *testing.T, w *workload) {
	if err := w.warm(*scaled); err != nil {
		t.Fatal(err)
	}
	for n := range *rounds {
		if err := w.round(n, *scaled); err != nil {
			t.Fatal(err)
		}
	}
}

// publish writes the section of the document, and the chart beside it.
func publish(t *testing.T, text, drawing string) {
	doc, err := os.ReadFile(*into)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*into, []byte(contest.Replace(string(doc), heading, text)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(*into), picture), []byte(drawing), 0o644); err != nil {
		t.Fatal(err)
	}
}

// report is the section of the document.
func (r *results) report() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\nBy `make bench-servers`; %d rounds, participants of the same work in turns, at a scale of %s. %s\n%s\n![How many times better than each peer](%s)\n\n%s",
		heading, *rounds, contest.Num(*scaled), machine(), conditions, picture, claimHead)
	for i := range r.verdicts {
		text.WriteString(r.verdicts[i].row())
	}
	fmt.Fprintf(&text, "\nBy itself:\n\n%s", limitHead)
	for _, l := range append(fairness(r.work), r.limits...) {
		text.WriteString(l.row())
	}
	fmt.Fprintf(&text, "\nAll that was measured; rates are means, all else medians of the rounds:\n\n%s", figureHead)
	for _, w := range r.work {
		text.WriteString(w.rows())
	}
	return text.String()
}

func machine() string {
	rev := "unknown"
	if out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		rev = strings.TrimSpace(string(out))
	}
	load, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("Seen on %s at revision %s, with %s on %s/%s, %d cores, load average %s at the end.",
		time.Now().UTC().Format("2006-01-02"), rev, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), first)
}

// conditions tell what each does, so that the reader can judge what is compared.
const conditions = `Servers and the program that drives them share the machine; all servers are processes of their own on loopback and one disk, and sync
every write before they acknowledge it: ` + "`holdfast serve`" + `, etcd 3.7.3, ZooKeeper of Debian (standalone, 1 GB of heap), Redis of Debian
(appendonly yes, appendfsync always), PostgreSQL of Debian; what is not named is at its default. "Three nodes" are three processes.

- **Lock and unlock**: each caller has a name of its own, sixteen callers share a connection and its session. Holdfast by ` + "`holdfast.Open`" + `,
  etcd by its concurrency.Mutex, ZooKeeper by the lock of go-zookeeper, Redis by rueidislock (KeyMajority 1, NOLOOP, no limit of 20 ms on a
  try), PostgreSQL by a row with owner, token and expiry on a pool of 64 connections. The row tells no holder that it lost its lock, and Redis
  gives no token.
- **Hand-over**: all want one name, each on a connection of its own, and give it back at once. The time is from the call that gives it back
  to the return of the call that takes it, for another caller.
- **One counter**: additions of 1, sixteen callers a connection. etcd compares and swaps, since it cannot add.
- **Watchers**: a hundred share a connection; one writer is at most sixteen writes ahead of the slowest of them, so that every event reaches all.
- The ratio is ours to theirs, round by round, with its 95 % interval; where less is better, the bound is an upper one. A bound is kept or
  missed if the whole interval is on that side. Processor time is that of the servers alone.
`

// evenly is by how much the one served most may be ahead. A strict queue gives 1;
// a caller that the machine holds up for a whole round of the others misses one
// more, which is not the server's doing.
const evenly = 2

// fairness judges how evenly a lock that all want was served.
func fairness(work []*workload) []limit {
	var all []limit
	for _, w := range work {
		if w.crowd {
			uneven := w.entrants[0].all(func(f figures) float64 { return f.uneven })
			all = append(all, limit{w.what + ": how often the one served most was, less the one served least", evenly, contest.Median(uneven)})
		}
	}
	return all
}
