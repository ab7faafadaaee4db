//go:build unix

package server_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/drivertest"
)

var (
	batch = flag.Int("server.batch", 6, "cases of the conformance suite in one life of TestKilledBetweenCases")
	lines = flag.Int("server.lines", 2, "directories of TestKilledBetweenCases, which share the cases: their processes mostly wait")
)

func init() { roles["suite"] = suiteChild }

// suiteChild is one life: it runs some cases on the directory that its
// predecessors were killed on, and then counts until it is killed itself.
func suiteChild() error {
	go untilOrphaned()
	ctx := context.Background()
	names := strings.Split(os.Getenv("SERVER_TEST_CASES"), ",")
	url := "embed://" + os.Getenv("SERVER_TEST_DIR")
	s, err := holdfast.Open(ctx, url)
	if err != nil {
		return err
	}
	h := drivertest.URL(url)
	h.Stall, h.Cut, h.Flood = stall, stall, true
	h.Select = func(c drivertest.Case) bool { return slices.Contains(names, c.Name) }
	_ = drivertest.Check(ctx, h, func(c drivertest.Case, err error, _ time.Duration) {
		if err != nil {
			fmt.Println("failed", strings.ReplaceAll(err.Error(), "\n", "; "))
			return
		}
		fmt.Println("passed", c.Name)
	})
	return wear(ctx, s)
}

// wear takes a lock and counts, without end, and tells every answer. The lock is
// this life's own: that of a killed process is held until its session ends.
func wear(ctx context.Context, s *holdfast.Space) error {
	lock := s.Mutex(fmt.Sprintf("lock/%d", os.Getpid()))
	for {
		hold, err := lock.Acquire(ctx)
		if err != nil {
			return err
		}
		n, err := s.Counter("count").Add(ctx, 1)
		if err != nil {
			return err
		}
		fmt.Println("worn", uint64(hold.Token()), n)
		if err := hold.Release(); err != nil {
			return err
		}
	}
}

// lives is a directory and what its processes have told.
type lives struct {
	t       *testing.T
	dir     string
	passed  map[string]bool
	token   uint64
	count   int64
	killed  int
	written int
}

// live is one process: it must find everything that the ones before it were
// told, and is killed in the middle of writing.
func (l *lives) live(cases []string) {
	l.t.Helper()
	p := spawn(l.t, "suite", "SERVER_TEST_DIR="+l.dir, "SERVER_TEST_CASES="+strings.Join(cases, ","))
	for n := 0; n < 3; {
		line := p.line()
		switch word, rest, _ := strings.Cut(line, " "); word {
		case "passed":
			l.passed[rest] = true
		case "worn":
			n++
			l.worn(rest)
		default:
			l.t.Error(line)
			if word == "error:" {
				l.t.FailNow()
			}
		}
	}
	l.killed++
	for line := range p.lastWords() { // what was told before the kill counts, too
		l.worn(strings.TrimPrefix(line, "worn "))
	}
}

// worn checks a token and a count against all that were told before. The one
// command that a kill left without an answer may have counted or not.
func (l *lives) worn(text string) {
	l.t.Helper()
	var token uint64
	var count int64
	if _, err := fmt.Sscan(text, &token, &count); err != nil {
		l.t.Fatalf("the other process said %q: %v", text, err)
	}
	l.written++
	if token <= l.token || count <= l.count || count > l.count+2 {
		l.t.Errorf("after %d kills: token %d and count %d came after %d and %d", l.killed, token, count, l.token, l.count)
	}
	l.token, l.count = token, count
}

// Every case of the suite also passes in a process that takes over a directory
// from one that was killed.
func TestKilledBetweenCases(t *testing.T) {
	var names []string
	for _, c := range drivertest.Cases() {
		names = append(names, c.Name)
	}
	all := make([]*lives, *lines)
	t.Run("lines", func(t *testing.T) {
		for i := range all {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				all[i] = &lives{t: t, dir: t.TempDir(), passed: map[string]bool{}}
				n := 0
				for cases := range slices.Chunk(names, *batch) {
					if n++; n%len(all) == i {
						all[i].live(cases)
					}
				}
			})
		}
	})
	passed, killed, written := 0, 0, 0
	for _, l := range all {
		passed, killed, written = passed+len(l.passed), killed+l.killed, written+l.written
	}
	if passed < 200 || killed < 40 {
		t.Errorf("%d cases in %d lives; the suite has more", passed, killed)
	}
	t.Logf("proof: %d cases passed on %d directories, over %d kills; %d tokens and counts, none lost, none repeated", passed, len(all), killed, written)
}
