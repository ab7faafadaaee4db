package main

import (
	"errors"
	"fmt"
	"os"
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
// "proof: ".
var proofs = []proof{
	{"The machine against its naive twin", "./internal/core -run TestTwin|TestRetries|TestSnapshot -core.budget=BUDGET"},
	{"The session over a faulty link", "./internal/session -run TestRandomSchedules -session.budget=BUDGET"},
	{"The log and its snapshots, every bit and every crash", "./internal/node/storage -storage.full"},
	{"Whole clusters under faults", "./internal/sim -run TestSeeds -sim.first=1000 -sim.budget=BUDGET"},
	{"Nodes killed and stopped under load", "./server -run TestNodesDie -server.kills=100 -server.stops=20"},
	{"The suite on one directory, killed between its cases", "./server -run TestKilledBetweenCases -server.batch=1"},
	{"A node under three times the load that it can bear", "./internal/node/api -run TestOverload -api.sessions=10000 -api.overload=60s"},
	{"A node's memory under full load", "./server -run - -bench Memory$ -benchtime 1x -server.load=10m"},
	{"Processes on files, killed at random", "./filehold -run TestRandomKills|TestHandOver|TestFreedAfterKill -filehold.kills=1000"},
	{"PostgreSQL: cut links, stopped servers, killed backends", "./pghold -run TestProof -pghold.trials=200"},
	{"PostgreSQL: every mishap at every round trip", "./pghold -run TestTrips -pghold.trips"},
	{"Redis: cut links, stopped and killed servers", "./redishold -run TestProof|TestRedLockTokens -redishold.trials=200 -parallel 16"},
	{"Redis: every operation disturbed at every round trip", "./redishold -run KthTrip -redishold.kth=0"},
	{"NATS: cut links, stopped and killed servers", "./natshold -run TestProof -natshold.trials=200 -parallel 16"},
	{"What fifty edge nodes admit too much together", "./edge -run TestOverAdmission|TestLongRun -edge.nodes=50"},
	{"Edge nodes that come, go and miss messages, against a model", "./edge -run TestHistories$|TestKeptHistories -edge.histories=10000"},
	{"Edge nodes on NATS: many at once, cut off, without a server, killed", "./edge/natslink -run TestNodes|TestCut|TestServerKilled|TestKilledNode -natslink.nodes=100 -natslink.runs=20 -natslink.cut=30s -natslink.outage=10m"},
	{"The links of a server's clients cut at random moments", "./remote -run TestCuts -remote.cuts=200"},
	{"The links of commands under a lock cut at random moments", "./internal/cli -run TestCuts -cli.cuts=200"},
	{"Random sequences of operator commands on real processes, under load", "./internal/cli -run TestSequences$ -cli.sequences=200 -cli.steps=4"},
	{"Runners of pipelines killed at random moments", "./internal/cli -run TestPipeline_Killed -cli.runners=220"},
	{"A thousand blocked pipelines", "./pipeline/run -run TestIdle -run.blocked=1000 -run.idle=60s"},
}

// prove runs the proofs, of all packages or of those named, and writes what they
// report.
func prove(budget time.Duration, only []string) error {
	var doc strings.Builder
	fmt.Fprintf(&doc, "# Proofs\n\nLong runs, by `make prove BUDGET=%s`. %s\nA proof that is not listed was not run this time.\n", budget, machine())
	failed := false
	for _, p := range proofs {
		began := time.Now()
		args := strings.Fields(strings.ReplaceAll(p.args, "BUDGET", budget.String()))
		if len(only) > 0 && !slices.Contains(only, args[0]) {
			continue
		}
		out, err := goTest(append(args[:1:1], append([]string{"-v", "-timeout", (2*budget + 30*time.Minute).String()}, args[1:]...)...)...)
		verdict := "passed"
		if err != nil {
			verdict, failed = "FAILED", true
		}
		fmt.Fprintf(&doc, "\n## %s\n\n`go test %s`: %s after %s.\n\n%s", p.title, strings.Join(args, " "), verdict, time.Since(began).Round(time.Second), figures(out))
	}
	if err := os.WriteFile("docs/proofs.md", []byte(doc.String()), 0o644); err != nil {
		return err
	}
	if failed {
		return errors.New("a proof failed; docs/proofs.md says which")
	}
	return nil
}

// figures collects the lines that tests report with "proof: ".
func figures(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if _, figure, ok := strings.Cut(line, "proof: "); ok {
			b.WriteString("- " + strings.TrimSpace(figure) + "\n")
		}
	}
	return b.String()
}
