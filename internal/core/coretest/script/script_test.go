package script_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core/coretest/gen"
	"github.com/holdfast-io/holdfast/internal/core/coretest/script"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

// recorder is an engine that keeps the entry and answers on a twin.
type recorder struct {
	*twin.Twin
	got twin.Entry
}

func (r *recorder) Apply(e twin.Entry) (twin.Output, error) {
	r.got = e
	return r.Twin.Apply(e), nil
}

func (r *recorder) Ask([]string) (string, bool) { return "", false }

// TestLinesRoundTrip: a history written as a script is the same history.
func TestLinesRoundTrip(t *testing.T) {
	for seed := range uint64(40) {
		g := gen.New(seed)
		r := &recorder{Twin: twin.New(twin.Config{Budget: 10_000, Window: 1024, Waiters: 10_000})}
		p := script.NewPlayer(r)
		for range 60 {
			e := g.Next()
			want := script.Lines(e)
			_, _, err := p.Play(script.Block{Input: strings.Split(strings.TrimSpace(want), "\n")})
			if err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, want)
			}
			if got := script.Lines(r.got); got != want {
				t.Fatalf("seed %d: wrote\n%sread\n%s", seed, want, got)
			}
		}
	}
}

// TestParseRefuses: a script that checks nothing is an error, not a success.
func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "# only a comment\n", "open A ttl=1s\n", "----\nfoo\n"} {
		if _, err := script.Parse(text); err == nil {
			t.Errorf("Parse(%q) gives no error", text)
		}
	}
}

func ExamplePlayer() {
	p := script.NewPlayer(&recorder{Twin: twin.New(twin.Config{Budget: 10, Window: 8})})
	out, _, err := p.Play(script.Block{Input: []string{"open A ttl=30s", "A acquire jobs"}})
	fmt.Print(out, err)
	// Output:
	// A 0 ok rev=1 window=8 | until 30s
	// event 1.0 session:opened by A
	// A 1 ok token=2 rev=2 | until 30s
	// event 2.0 lock:acquired jobs by A token=2
	// <nil>
}
