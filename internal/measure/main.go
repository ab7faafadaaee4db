// Command measure runs the benchmarks and the long proofs and writes what it
// saw into docs.
//
//	go run ./internal/measure bench             writes the head of docs/benchmarks.md
//	go run ./internal/measure sizes             writes its section of large worlds
//	go run ./internal/measure prove -budget 5m  writes docs/proofs.md
//	go run ./internal/measure prove ./remote    only the proofs of these packages
//
// Speed is always a ratio to a baseline of the same run, repeated, with its
// spread: the machines are shared, and a figure alone says little.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("say bench, sizes or prove")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	budget := flags.Duration("budget", 5*time.Minute, "time for each proof")
	count := flags.Int("count", 5, "how often each benchmark runs")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "bench":
		return bench(*count)
	case "sizes":
		return benchSizes(*count)
	case "prove":
		return prove(*budget, flags.Args())
	}
	return fmt.Errorf("unknown command %q: say bench, sizes or prove", args[0])
}

// machine says where and when the figures were seen.
func machine() string {
	rev := "unknown"
	if out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		rev = strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("Seen on %s at revision %s, with %s on %s/%s, %d cores.",
		time.Now().UTC().Format("2006-01-02"), rev, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}

// goTest runs go test and passes its output on while collecting it.
func goTest(args ...string) (string, error) {
	cmd := exec.Command("go", append([]string{"test", "-count=1"}, args...)...)
	var out strings.Builder
	cmd.Stdout = tee{&out}
	cmd.Stderr = os.Stderr
	err := cmd.Run()
	return out.String(), err
}

// tee writes to the terminal and to a builder.
type tee struct{ b *strings.Builder }

func (t tee) Write(p []byte) (int, error) {
	t.b.Write(p)
	return os.Stdout.Write(p)
}
