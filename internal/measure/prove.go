package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// proof is one long run.
type proof struct {
	title string
	args  string // of go test; BUDGET stands for the time it may take
}

// proofs lists them. A test reports its figures in log lines that begin with
// "proof: "; of a fuzz target, which is one line here, the last line of the fuzzer is the
// figure.
var proofs = []proof{
	{"The machine against its naive twin", "./internal/core -run TestTwin|TestRetries|TestSnapshot -core.budget=BUDGET"},
	{"The machine's containers at every size, and histories of thousands", "./internal/core -run Sizes$|TestTree|TestLargeWorlds -core.models -core.large=3000"},
	{"The containers of sessions at every size", "./internal/session -run Sizes$ -session.models"},
	{"The containers of watches at every size", "./internal/watch -run Sizes$ -watch.models"},
	{"The session over a faulty link", "./internal/session -run TestRandomSchedules -session.budget=BUDGET"},
	{"The log and its snapshots, every bit and every crash", "./internal/node/storage -storage.full"},
	{"Whole clusters under faults", "./internal/sim -run TestSeeds -sim.first=1000 -sim.budget=BUDGET"},
	{"Operators: any command at any time, and lost disks", "./internal/sim -run TestOperators -sim.first=300000 -sim.budget=BUDGET"},
	{"Worlds of production nodes under faults", "./internal/world -run TestWorlds -world.first=1000 -world.budget=BUDGET"},
	{"Nodes killed and stopped under load", "./server -run TestNodesDie -server.kills=100 -server.stops=20"},
	{"The suite on one directory, killed between its cases", "./server -run TestKilledBetweenCases -server.batch=1 -server.lines=1"},
	{"A node under three times the load that it can bear", "./internal/node/api -run TestOverload -api.sessions=10000 -api.overload=60s"},
	{"A node's memory under full load", "./server -run - -bench Memory$ -benchtime 1x -server.load=10m"},
	{"Processes on files, killed at random", "./filehold -run TestRandomKills|TestHandOver|TestFreedAfterKill -filehold.kills=1000"},
	{"Files: every operation disturbed at every system call", "./filehold -run KthCall -filehold.kth=0"},
	{"PostgreSQL: cut links, stopped servers, killed backends", "./pghold -run TestProof -pghold.trials=200"},
	{"PostgreSQL: every mishap at every round trip", "./pghold -run TestTrips -pghold.trips"},
	{"Redis: cut links, stopped and killed servers", "./redishold -run TestProof|TestRedLockTokens -redishold.trials=200 -parallel 16"},
	{"Redis: every operation disturbed at every round trip", "./redishold -run KthTrip -redishold.kth=0"},
	{"Redis: a session with much ends", "./redishold -run TestLadenSessionEnds -redishold.laden=50000"},
	{"NATS: every operation disturbed at every round trip", "./natshold -run KthTrip -natshold.kth=0"},
	{"NATS: cut links, stopped and killed servers", "./natshold -run TestProof -natshold.trials=200 -parallel 16"},
	{"Every limiter against a twin that keeps all admissions", "./limit -run AgainstTwin$ -limit.schedules=100000"},
	{"Blocks of limiters use what the rate allows: files", "./filehold -run TestConformance$/^Limiter$/^Leased$ -drivertest.leased=0.8"},
	{"Blocks of limiters use what the rate allows: Redis", "./redishold -run TestConformance$/^Limiter$/^Leased$ -drivertest.leased=0.8"},
	{"Blocks of limiters use what the rate allows: PostgreSQL", "./pghold -run TestConformance$/^Limiter$/^Leased$ -drivertest.leased=0.8"},
	{"Blocks of limiters use what the rate allows: NATS", "./natshold -run TestConformance$/^Limiter$/^Leased$ -drivertest.leased=0.8"},
	{"Blocks of limiters use what the rate allows: a node", "./server -run TestConformance$/^Limiter$/^Leased$ -drivertest.leased=0.8"},
	{"CRDTs: laws, deltas and a model of all operations", "./crdt -run TestHistories|TestLaws|TestBytesOfRetiredActors -crdt.histories=10000"},
	{"Guards: all trees of four leaves, in all orders", "./guard -run TestTruthTable -guard.whole"},
	{"Managers of locks and semaphores, played at random on backends", "./guard/manager -run TestProperties_Backends -manager.seeds=200"},
	{"Files of guards: any text is read or refused", "./guard/guardfile -run - -fuzz ^FuzzParse$ -fuzztime BUDGET"},
	{"Files of pipelines: any text is read or refused", "./guard/guardfile -run - -fuzz ^FuzzParsePipeline$ -fuzztime BUDGET"},
	{"Guards resume by events, beside a bare Watch and Acquire", "./guard/gather -run TestResumes -gather.bounds"},
	{"Blocked pipelines resume by events, beside a bare Watch", "./pipeline/run -run TestResumes -run.resumes=200"},
	{"What fifty edge nodes admit too much together", "./edge -run TestOverAdmission|TestLongRun -edge.nodes=50"},
	{"Edge nodes that come, go and miss messages, against a model", "./edge -run TestHistories$|TestKeptHistories -edge.histories=10000"},
	{"Edge nodes on NATS: many at once, cut off, without a server, killed", "./edge/natslink -run TestNodes|TestCut|TestServerKilled|TestKilledNode -natslink.nodes=100 -natslink.runs=20 -natslink.cut=30s -natslink.outage=10m"},
	{"Five thousand clients come back at once", "./remote -run TestHerd -remote.clients=5000"},
	{"The links of a server's clients cut at random moments", "./remote -run TestCuts -remote.cuts=200"},
	{"The links of commands under a lock cut at random moments", "./internal/cli -run TestCuts -cli.cuts=200"},
	{"Random sequences of operator commands on real processes, under load", "./internal/cli -run TestSequences$ -cli.sequences=200 -cli.steps=4"},
	{"Three nodes under faults, and clients by Go, gRPC and REST", "./internal/cli -run TestFaults -cli.faults=500 -cli.operations=1000000"},
	{"From one node to three, to five and back, each replaced, under load", "./internal/cli -run TestGrowAndShrink -cli.grown=5 -cli.pause"},
	{"Nodes of three wiped under load", "./internal/cli -run TestWiped -cli.wipes=100 -cli.pause"},
	{"Nodes upgraded one after the other under load", "./internal/cli -run TestUpgrade_Rolling -cli.pause"},
	{"Runners of pipelines killed and stopped at each step and at random moments", "./internal/cli -run TestRunners -cli.every=1 -cli.moments=100"},
	{"A thousand blocked pipelines", "./pipeline/run -run TestIdle -run.blocked=1000 -run.idle=60s"},
}

// prove runs the proofs, of all packages or of those named, and writes what each
// reports into its section of the document. The others stay as they are, with the
// revision at which they were seen.
func prove(budget time.Duration, only []string) error {
	var failed []string
	for _, p := range proofs {
		args := strings.Fields(strings.ReplaceAll(p.args, "BUDGET", budget.String()))
		if len(only) > 0 && !slices.Contains(only, args[0]) {
			continue
		}
		text, err := p.run(args, budget)
		if err != nil {
			failed = append(failed, p.title)
		}
		if err := record(p.title, text); err != nil {
			return err
		}
	}
	if failed != nil {
		return fmt.Errorf("failed, see %s: %s", proofsDoc, strings.Join(failed, "; "))
	}
	return nil
}

// run does the proof and tells what it saw.
func (p proof) run(args []string, budget time.Duration) (string, error) {
	began := time.Now()
	out, err := goTest(append(args[:1:1], append([]string{"-v", "-timeout", (2*budget + 60*time.Minute).String()}, args[1:]...)...)...)
	verdict := "passed"
	if err != nil {
		verdict = "FAILED"
	}
	return fmt.Sprintf("`go test %s`: %s after %s. %s\n\n%s", strings.Join(args, " "), verdict, time.Since(began).Round(time.Second), machine(), figures(out)), err
}

const proofsDoc = "docs/proofs.md"

// record writes a section of the document, in the place of the one with its title.
func record(title, text string) error {
	doc, err := os.ReadFile(proofsDoc)
	if err != nil {
		return err
	}
	return os.WriteFile(proofsDoc, []byte(withSection(string(doc), title, text)), 0o644)
}

// withSection is a document with a section in the place of the one with its title, or
// at the end.
func withSection(doc, title, text string) string {
	section := "\n## " + title + "\n\n" + strings.TrimRight(text, "\n") + "\n"
	before, rest, found := strings.Cut(doc, "\n## "+title+"\n")
	if !found {
		return strings.TrimRight(doc, "\n") + "\n" + section
	}
	if _, after, more := strings.Cut(rest, "\n## "); more {
		section += "\n## " + after
	}
	return before + section
}

// lastRate is what a fuzzer did in its last moment, which tells nothing of the whole.
var lastRate = regexp.MustCompile(` \(\d+/sec\)`)

// figures collects the lines that tests report with "proof: ", and the last that a fuzzer
// does.
func figures(out string) string {
	var b strings.Builder
	fuzzed := ""
	for line := range strings.Lines(out) {
		if _, figure, ok := strings.Cut(line, "proof: "); ok {
			b.WriteString("- " + strings.TrimSpace(figure) + "\n")
		}
		if figure, ok := strings.CutPrefix(line, "fuzz: elapsed: "); ok {
			fuzzed = "- fuzzed for " + lastRate.ReplaceAllString(strings.TrimSpace(figure), "") + "\n"
		}
	}
	return b.String() + fuzzed
}
