package core_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/core/coretest/script"
	"github.com/holdfast-io/holdfast/internal/core/coretest/twin"
)

var rewrite = flag.Bool("rewrite", false, "write what the machine puts out into testdata; then read every changed line against the design")

// TestScripts plays every story in testdata, on the machine and on its twin.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts in testdata", err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txt")
		t.Run(name, func(t *testing.T) { playFile(t, f, newMachineEngine(t), *rewrite) })
		t.Run(name+"/twin", func(t *testing.T) { playFile(t, f, newTwinEngine(), false) })
	}
}

// playFile compares every block with what the engine puts out.
func playFile(t *testing.T, file string, e script.Engine, write bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := script.Parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	got := make([]string, len(blocks))
	p := script.NewPlayer(e)
	for i, b := range blocks {
		out, known, err := p.Play(b)
		if err != nil {
			t.Fatalf("%s:%d: %v", file, b.Line, err)
		}
		if got[i] = out; !known {
			got[i] = b.Output
		}
		if got[i] != b.Output && !write {
			t.Errorf("%s:%d: %s\n got:\n%s want:\n%s", file, b.Line, strings.Join(b.Input, "; "), got[i], b.Output)
		}
	}
	if write {
		if err := os.WriteFile(file, []byte(script.Format(blocks, got)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// limits are what a script can set with "config".
type limits struct{ budget, window, result int }

func readLimits(words []string) limits {
	l := limits{budget: 10_000, window: 1024}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		n, err := strconv.Atoi(v)
		switch {
		case err == nil && k == "budget":
			l.budget = n
		case err == nil && k == "window":
			l.window = n
		case err == nil && k == "result":
			l.result = n
		default:
			panic("config takes budget=N, window=N and result=N, not " + w)
		}
	}
	return l
}

// twinEngine plays scripts on the twin.
type twinEngine struct{ *twin.Twin }

func newTwinEngine() *twinEngine {
	e := &twinEngine{}
	e.Ask([]string{"config"})
	return e
}

func (e *twinEngine) Apply(in twin.Entry) (twin.Output, error) { return e.Twin.Apply(in), nil }

func (e *twinEngine) Ask(words []string) (string, bool) {
	switch words[0] {
	case "config":
		l := readLimits(words[1:])
		e.Twin = twin.New(twin.Config{Budget: l.budget, Window: uint64(l.window), Waiters: 10_000, Result: l.result})
		return "", true
	case "table":
		return tableRows(e.Table(script.ID(words[1]))), true
	case "snapshot":
		return "", true
	case "due":
		at, ok := e.Due()
		return dueLine(at, ok), true
	}
	return "", false
}

// machineEngine plays scripts on the machine.
type machineEngine struct {
	*subject
	t *testing.T
}

func newMachineEngine(t *testing.T) *machineEngine {
	e := &machineEngine{t: t}
	e.Ask([]string{"config"})
	return e
}

func (e *machineEngine) Ask(words []string) (string, bool) {
	switch words[0] {
	case "config":
		l := readLimits(words[1:])
		e.subject = newSubject(core.Config{Budget: l.budget, Window: uint64(l.window), Result: l.result})
		return "", true
	case "table":
		table, _ := e.Table(script.ID(words[1]))
		return tableRows(table), true
	case "due":
		at, ok := e.Due()
		return dueLine(at, ok), true
	case "inspect":
		r, ok := e.Inspect("default", words[1])
		return resourceLines(words[1], r, ok), true
	case "snapshot":
		e.restore()
		return "", true
	}
	return "", false
}

// restore goes on with a machine made from a snapshot.
func (e *machineEngine) restore() {
	r, err := e.restored(64)
	if err == nil {
		err = equalMachines(e.subject, r)
	}
	if err != nil {
		e.t.Fatalf("restored: %v", err)
	}
	e.subject = r
}

// resourceLines prints what Inspect tells.
func resourceLines(name string, r core.ResourceInfo, known bool) string {
	if !known {
		return name + " is unknown\n"
	}
	s := fmt.Sprintf("%s limit=%d used=%d number=%d value=%q\n", r.Name, r.Limit, r.Used, r.Number, r.Value)
	for _, c := range r.Holders {
		s += fmt.Sprintf("holder %s %d token=%d since=%v ends=%v%s\n",
			script.Name(c.Session), c.Seq, c.Token, time.Duration(c.Since), time.Duration(c.Ends), claimFlags(c))
	}
	for _, c := range r.Waiters {
		s += fmt.Sprintf("waiter %d %s %d behind %s %d since=%v ends=%v%s\n",
			c.Position, script.Name(c.Session), c.Seq, script.Name(c.Before), c.BeforeSeq, time.Duration(c.Since), time.Duration(c.Ends), claimFlags(c))
	}
	return s
}

func claimFlags(c core.ClaimInfo) (s string) {
	words := []string{" shared", " revoked", " stale", " reclaimable", " reserved", " upgrade"}
	for i, is := range []bool{c.Mode == core.Shared, c.Revoked, c.Stale, c.Reclaimable, c.Reserved, c.Upgrade} {
		if is {
			s += words[i]
		}
	}
	return s
}

func dueLine(at int64, ok bool) string {
	if !ok {
		return "due never\n"
	}
	return fmt.Sprintf("due %v\n", time.Duration(at))
}

func tableRows(table []core.ClaimRow) string {
	var s strings.Builder
	for _, r := range table {
		s.WriteString(script.Row(r))
	}
	return s.String()
}
