package bench

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	stat "github.com/holdfast-io/holdfast/internal/contest"
	"github.com/holdfast-io/holdfast/internal/services"
)

var (
	rounds = flag.Int("bench.rounds", 2, "how often each contest is run")
	scale  = flag.Float64("bench.scale", 0.05, "how long each side runs, to what the contest says")
	into   = flag.String("bench.into", "", "the document that gets the table")
)

func TestMain(m *testing.M) { os.Exit(services.Main(m).Run()) }

const heading = "## Beside peers"

// TestPeers runs all contests in turns, round by round. By default it only shows
// that they run.
func TestPeers(t *testing.T) {
	redis, postgres := redisContests(t), postgresContests(t)
	all := append(redis.contests, postgres.contests...)
	for n := range *rounds {
		for _, c := range all {
			if err := c.round(n, *scale, spent); err != nil {
				t.Fatal(err)
			}
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\nBy `make bench-peers`; %d rounds in turns with the peer, mean rates, and the ratio with its 95 %% interval. %s\n"+
		"The last two columns are the median processor time for each, of program and server together, which depends less on what else the machine does.\n"+
		"The participants and how they run: package comment and tests of `bench/`.\n\n%s", heading, *rounds, machine(), tableHead)
	for _, c := range all {
		text.WriteString(c.row())
	}
	fmt.Fprintf(&text, "\n%s", fairness(t, append(postgres.crowds, redis.crowds...)))
	t.Log("\n" + text.String())
	if *into == "" {
		return
	}
	doc, err := os.ReadFile(*into)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*into, []byte(stat.Replace(string(doc), heading, text.String())), 0o644); err != nil {
		t.Fatal(err)
	}
}

// field is what is measured on one engine.
type field struct {
	contests []*contest
	crowds   []crowd
}

func machine() string {
	rev := "unknown"
	if out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		rev = strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("Seen on %s at revision %s, with %s on %s/%s, %d cores.",
		time.Now().UTC().Format("2006-01-02"), rev, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}

// each runs one function a caller, over and over, all at a time, and counts.
func each(callers []func() error) side {
	return func(d time.Duration) (float64, error) {
		counts, err := together(callers, d)
		var sum int
		for _, n := range counts {
			sum += n
		}
		return float64(sum) / d.Seconds(), err
	}
}

// one is each with one caller.
func one(f func() error) side { return each([]func() error{f}) }

// together has each caller repeat itself, and counts what was done after d.
func together(callers []func() error, d time.Duration) (counts []int, err error) {
	counts = make([]int, len(callers))
	errs := make([]error, len(callers))
	var all sync.WaitGroup
	start := time.Now()
	for i, f := range callers {
		all.Go(func() {
			for time.Since(start) < d && errs[i] == nil {
				if errs[i] = f(); errs[i] == nil && time.Since(start) < d {
					counts[i]++
				}
			}
		})
	}
	all.Wait()
	for _, e := range errs {
		if e != nil {
			return counts, e
		}
	}
	return counts, nil
}

// A lock takes a name and returns what gives it back.
type lock func() (unlock func() error, err error)

// pair is taking it and giving it back.
func pair(l lock) func() error {
	return func() error {
		unlock, err := l()
		if err != nil {
			return err
		}
		return unlock()
	}
}

// changes counts how often a lock goes from one of its callers to another.
func changes(locks []lock) side {
	var last, changed atomic.Int64
	callers := make([]func() error, len(locks))
	for i, l := range locks {
		callers[i] = pair(func() (func() error, error) {
			unlock, err := l()
			if err == nil && last.Swap(int64(i)) != int64(i) {
				changed.Add(1)
			}
			return unlock, err
		})
	}
	return func(d time.Duration) (float64, error) {
		changed.Store(0)
		start := time.Now()
		_, err := together(callers, d)
		return float64(changed.Load()) / time.Since(start).Seconds(), err
	}
}

// crowd is a lock that several want all the time.
type crowd struct {
	who   string
	most  float64 // how many times as often as the least may one be served; 0: as it comes
	locks []lock
}

// fairness tells how often each of a crowd was served.
func fairness(t *testing.T, crowds []crowd) string {
	var text strings.Builder
	d := time.Duration(float64(10*time.Second) * min(*scale, 1))
	fmt.Fprintf(&text, "How often each of 8 waiters was served in %s, the most to the least:\n\n| who | goal | most | least | ratio | |\n|---|---|---|---|---|---|\n", d)
	for _, c := range crowds {
		callers := make([]func() error, len(c.locks))
		for i, l := range c.locks {
			callers[i] = pair(l)
		}
		counts, err := together(callers, d)
		if err != nil {
			t.Fatalf("fairness, %s: %v", c.who, err)
		}
		text.WriteString(c.row(counts))
	}
	return text.String()
}

func (c *crowd) row(counts []int) string {
	least, most := counts[0], counts[0]
	for _, n := range counts {
		least, most = min(least, n), max(most, n)
	}
	ratio := float64(most) / float64(least)
	goal, verdict := "–", ""
	if c.most > 0 {
		goal, verdict = "≤ "+stat.Num(c.most), "kept"
		if ratio > c.most {
			verdict = "**missed**"
		}
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %s | %s |\n", c.who, goal, most, least, stat.Num(ratio), verdict)
}
