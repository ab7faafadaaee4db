package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A run with damaged keys is a failure of what is kept, and not of the command line: exit code 125. Others are listed.
func TestPipeline_Damaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "one.yaml")
	if err := os.WriteFile(file, []byte("pipeline: p\nphases:\n  - {name: a, run: [printf, abc]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if out, err := program(t, dir, "pipeline", "run", file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if out, err := program(t, dir, "kv", "put", "holdfast/pipelines/p/run/1", "{garbage").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, args := range [][]string{{"status", "p/1"}, {"why", "p/1"}, {"cancel", "p/1"}, {"run", "--resume", "p/1"}, {"list", "--all", "p"}} {
		out, err := program(t, dir, append([]string{"pipeline"}, args...)...).CombinedOutput()
		if code := codeOf(t, err); code != 125 || !strings.Contains(string(out), "holdfast/pipelines/p/run/1") || args[0] == "list" && !strings.Contains(string(out), "p/2") {
			t.Errorf("%q: exit code %d: %s", args, code, out)
		}
	}
}
