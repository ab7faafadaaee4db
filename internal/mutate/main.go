// Command mutate shows where the tests would not notice a change of the code: it
// draws small changes (mutants) at random, runs the tests of the package and of
// its neighbours on each, and keeps in a record which of them no test noticed.
//
//	go run ./internal/mutate [-budget 10m] [-seed 1] [-only text] [package…]
//
// Many mutants are compiled into one test program, each behind a condition, and
// switched on one at a time; the changed files take the place of the true ones
// (go test -overlay), so the tree stays as it is. A mutant's name is package, function, kind and a hash of the
// lines around it: the name stays when code moves, so a run continues where the
// last one stopped, on a later revision too.
//
// The record (record.txt beside this file) has one line for each mutant, with
// its verdict:
//
//	killed     a test failed; the line names it
//	timeout    the tests took far longer than without the mutant; counts as killed
//	survived   every test passed; the line gives the reason why that is right, or
//	           "open: " and what is missing, or "?" while nobody has looked
//	invalid    does not compile; not counted
//
// Survivors that are open are judged anew by -again, to see that a new test kills
// them.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

// recordPath is where the record is kept, from the root of the module.
const recordPath = "internal/mutate/record.txt"

// tests says which packages' tests judge a mutant: those of its own package
// first, then of neighbours that use it in earnest.
var tests = map[string][]string{
	"driver/onstore":             {"driver/onstore"},
	"filehold":                   {"filehold"},
	"internal/client":            {"internal/client", "memhold"},
	"internal/node/api":          {"internal/node/api"},
	"internal/node/dialect/rest": {"internal/node/api", "server/api"},
	"internal/node/dialect/rpc":  {"internal/node/api", "server/api"},
	"internal/node/disk":         {"internal/node/disk", "internal/sim"},
	"internal/node/gateway":      {"internal/node/gateway", "internal/node/api"},
	"internal/node/relay":        {"internal/node/api"},
	"internal/node/replica":      {"internal/node/replica", "internal/sim"},
	"internal/node/transport":    {"internal/node/transport", "server"},
	"memhold":                    {"memhold"},
	"natshold":                   {"natshold"},
	"pghold":                     {"pghold"},
	"redishold":                  {"redishold"},
	"remote":                     {"remote"},
	"server":                     {"server"},
}

// options are what one run is asked to do.
type options struct {
	budget time.Duration
	seed   uint64
	only   string // part of the names to judge; "": any
	again  bool   // judge open survivors, instead of new mutants
	own    bool   // run no neighbour's tests
}

func main() {
	var o options
	flag.DurationVar(&o.budget, "budget", 10*time.Minute, "stop after this time")
	flag.Uint64Var(&o.seed, "seed", 1, "which order the mutants are drawn in")
	flag.StringVar(&o.only, "only", "", "judge only mutants with this text in their names, whatever the record says of them")
	flag.BoolVar(&o.again, "again", false, "judge anew the survivors that are open")
	flag.BoolVar(&o.own, "own", false, "run the package's own tests only; -again asks the neighbours later")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// run judges mutants of the packages until the budget is used up or none is
// left, and prints the counts of the whole record.
func run(ctx context.Context, o options, packages []string) error {
	packages, err := known(packages)
	if err != nil {
		return err
	}
	rec, err := readRecord(recordPath)
	if err != nil {
		return err
	}
	all, err := findAll(packages)
	if err != nil {
		return err
	}
	rec.forget(packages, all)
	if err := judgeAll(ctx, o, draw(all, o, rec), rec); err != nil {
		return err
	}
	fmt.Print(rec.summary())
	return rec.write(recordPath)
}

// judges says which packages' tests to run.
func (o options) judges() map[string][]string {
	if !o.own {
		return tests
	}
	own := map[string][]string{}
	for pkg := range tests {
		own[pkg] = []string{pkg}
	}
	return own
}

// known checks the packages' names, which may be written as ./dir; none means
// all.
func known(packages []string) ([]string, error) {
	if len(packages) == 0 {
		return slices.Sorted(maps.Keys(tests)), nil
	}
	var clean []string
	for _, p := range packages {
		p = strings.Trim(strings.TrimPrefix(p, "./"), "/")
		if tests[p] == nil {
			return nil, fmt.Errorf("no tests are known for the package %q: add it to the table in internal/mutate/main.go", p)
		}
		clean = append(clean, p)
	}
	return clean, nil
}

// judgeAll judges one mutant after the other and keeps each verdict at once, so
// that an interrupted run loses nothing.
func judgeAll(ctx context.Context, o options, drawn []mutant, rec record) error {
	ctx, cancel := context.WithTimeout(ctx, o.budget)
	defer cancel()
	j, err := newJudge(".", o.judges())
	if err != nil {
		return err
	}
	defer j.close()
	tell := func(m mutant, l line) error {
		fmt.Printf("%-8s %s (%s:%d): %s %s\n", l.verdict, m.name, m.file, m.line, m.what, l.note)
		rec[m.name] = l
		return rec.write(recordPath)
	}
	for len(drawn) > 0 {
		var batch []mutant
		batch, drawn = cut(drawn)
		err := j.judge(ctx, batch, tell)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
