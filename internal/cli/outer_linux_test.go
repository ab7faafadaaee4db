package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A phase that holds nothing finds no names, tokens or parameters of the program in which the pipeline is run.
func TestPipeline_OuterEnvironment(t *testing.T) {
	dir := t.TempDir()
	text := "pipeline: p\nparams: {mine: {type: string, default: x}}\nphases:\n  - {name: a, run: [env]}\n"
	if err := os.WriteFile(filepath.Join(dir, "p.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, dir, "pipeline", "run", "p.yaml")
	for _, name := range []string{"LOCK", "TOKEN", "TOKENS", "PARAM_theirs", "PARAM_mine", "SESSION"} {
		cmd.Env = append(cmd.Env, "HOLDFAST_"+name+"=outer")
	}
	b, err := cmd.Output()
	if out := string(b); err != nil || strings.Count(out, "=outer") != 1 || !strings.Contains(out, "HOLDFAST_SESSION=outer") || !strings.Contains(out, "HOLDFAST_PARAM_mine=x") {
		t.Errorf("%v: %s", err, out)
	}
}
