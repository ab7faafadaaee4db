//go:build unix

package api_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services/programs"
)

// The wire is open to others: a Python program without any library takes, renews
// and releases a lock.
func TestPython(t *testing.T) {
	python, err := programs.Python.Ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := serve(t)
	out, err := exec.CommandContext(r.ctx, python, "testdata/client.py", "http://"+r.addr).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "token ") {
		t.Fatalf("%v: %s", err, out)
	}
	r.holders("jobs/from-python", 1)
}
