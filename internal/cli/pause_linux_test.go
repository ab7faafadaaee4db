package cli_test

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"
)

// statedPause is how long calls wait at most beside a change, by docs/operate.md. A busy machine takes longer, so that only
// the proofs judge it, with -cli.pause.
const statedPause = 3 * time.Second

var judgePause = flag.Bool("cli.pause", false, "fail if a call beside a change takes longer than docs/operate.md states")

// paused tells how long the longest call took beside what was done.
func paused(t *testing.T, longest time.Duration) {
	t.Helper()
	t.Logf("proof: the longest call beside it took %s; stated are %s", longest.Round(time.Millisecond), statedPause)
	if *judgePause && longest > statedPause {
		t.Errorf("a call took %s, and docs/operate.md states %s", longest, statedPause)
	}
}

// The pause that the proofs judge is the one that docs/operate.md states.
func TestStatedPause(t *testing.T) {
	text, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "two election timeouts and a hand-over at most, which is " + statedPause.String() + " where machines are not overloaded"; !strings.Contains(string(text), want) {
		t.Errorf("docs/operate.md does not say %q", want)
	}
}
