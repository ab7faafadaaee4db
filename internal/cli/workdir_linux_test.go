package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// swapped is a file of guards, of which the first runs a command beside the directory app, in which the program is started.
// The others pass in app as it is, and fail in the directory new.
func swapped(t *testing.T, command string) (file string) {
	t.Helper()
	base := t.TempDir()
	for name, text := range map[string]string{
		"app/issues.json": `[{"id":"1","status":"closed"}]`, "new/freeze": "", "new/issues.json": `[{"id":"1","status":"open"}]`, "swap": "cd " + base + "; " + command,
		"g.yaml": "guards:\n  swap: {when: {custom_check: {command: sh " + base + "/swap}}}\n  go: {when: {file_not_exists: freeze}}\n  closed: {when: {issue_status: {issue: '1', status: closed}}}\n",
	} {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Join(base, "app"))
	return filepath.Join(base, "g.yaml")
}

// What is at a path is looked at, also when another directory came there while the program ran: it does not stay in the old one.
func TestGuard_WorkingDirectoryReplaced(t *testing.T) {
	file := swapped(t, "mv app old; mv new app")
	if _, out, _ := here(t, "--url", "mem://replaced", "guard", "eval", "--commands", "--issues", "issues.json", file); out != "swap: passed\ngo: failed\nclosed: failed\n" {
		t.Error(out)
	}
}

// A directory that was deleted is neither without the file nor with it, and no run is begun in one.
func TestGuard_WorkingDirectoryDeleted(t *testing.T) {
	file := swapped(t, "rm -r app")
	for range 2 { // the first finds it at its beginning
		if _, out, _ := here(t, "--url", "mem://deleted", "guard", "eval", "--commands", "--issues", "issues.json", file); out != "swap: error\ngo: error\nclosed: error\n" {
			t.Error(out)
		}
	}
	if code, _, text := here(t, "--url", "mem://deleted", "pipeline", "run", file); code != 64 || !strings.Contains(text, "--dir . is no directory") {
		t.Errorf("%d %s", code, text)
	}
}
