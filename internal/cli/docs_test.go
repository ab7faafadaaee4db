package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/internal/cli"
)

// example is a line that a document tells to type, and what it says comes of it.
type example struct {
	command string
	want    []string
}

// examplesOf reads the console blocks of a document.
func examplesOf(doc string) []example {
	var found []example
	for i, block := range strings.Split(doc, "```console\n") {
		if i == 0 {
			continue
		}
		block, _, _ = strings.Cut(block, "```")
		for line := range strings.Lines(block) {
			line = strings.TrimSuffix(line, "\n")
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				found = append(found, example{command: command})
				continue
			}
			last := &found[len(found)-1]
			last.want = append(last.want, line)
		}
	}
	return found
}

// What docs/cli.md shows is what happens.
func TestDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := examplesOf(string(doc))
	if len(examples) < 30 {
		t.Fatalf("only %d examples are found", len(examples))
	}
	runExamples(t, t.TempDir(), examples)
}

// What docs/guards.md shows is what happens, with the files that it shows.
func TestDocument_Guards(t *testing.T) {
	doc, err := os.ReadFile("../../docs/guards.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, files := t.TempDir(), regexp.MustCompile("(?s)```yaml\n# ([a-z]+.yaml)\n.*?```").FindAllStringSubmatch(string(doc), -1)
	for _, m := range files {
		text := strings.TrimSuffix(strings.TrimPrefix(m[0], "```yaml\n"), "```")
		if err := os.WriteFile(filepath.Join(dir, m[1]), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if examples := examplesOf(string(doc)); len(examples) < 12 || len(files) != 8 {
		t.Fatalf("only %d examples and %d files are found", len(examples), len(files))
	}
	runExamples(t, dir, examplesOf(string(doc)))
}

// runExamples types the examples into a shell, and compares.
func runExamples(t *testing.T, dir string, examples []example) {
	t.Helper()
	for _, e := range examples {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", e.command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+filepath.Join(dir, "space"), "XDG_CONFIG_HOME="+dir)
		out, _ := cmd.CombinedOutput() // how it ends, the examples say themselves
		if got := string(out); !matches(e.want, got) {
			t.Errorf("$ %s\n%swant:\n%s", e.command, got, strings.Join(e.want, "\n"))
		}
	}
}

// matches compares; … stands for anything within a line.
func matches(want []string, got string) bool {
	var pattern strings.Builder
	for _, line := range want {
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", "[^\n]+") + "\n")
	}
	return regexp.MustCompile("^" + pattern.String() + "$").MatchString(got)
}

// The settings are those of the document's table, with their variables: a variable that
// is told and not read would be ignored without a word.
func TestDocument_Settings(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "| setting | variable | default |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, name := range cli.SettingNames {
		if !strings.Contains(table, "`"+name+"`") || !strings.Contains(table, "`"+cli.EnvName(name)+"`") {
			t.Errorf("%s or %s is not told", name, cli.EnvName(name))
		}
	}
	told := regexp.MustCompile("`HOLDFAST_[A-Z_]+`").FindAllString(table, -1)
	for _, variable := range told {
		if !slices.ContainsFunc(cli.SettingNames, func(name string) bool { return "`"+cli.EnvName(name)+"`" == variable }) {
			t.Errorf("%s is told, and nothing reads it", variable)
		}
	}
	if len(told) < 40 {
		t.Errorf("the table has %d variables", len(told))
	}
}

// Every flag of a node can be set by the environment, as its help says, but the word of an operator for one start.
func TestSettings_OfServe(t *testing.T) {
	serve, _, err := cli.Root().Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	serve.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "moved" && !slices.Contains(cli.SettingNames, f.Name) {
			t.Errorf("--%s of serve cannot be set by %s", f.Name, cli.EnvName(f.Name))
		}
	})
}

// What is set for a node or for a turn is not taken for something else of that name.
func TestSettings_LeaveOthersAlone(t *testing.T) {
	for _, c := range []struct{ command, flag, value string }{
		{"snapshot restore", "wait", "1h"}, {"snapshot restore", "data", "/x"}, {"snapshot restore", "peer", "127.0.0.1:1"},
		{"pipeline run", "id", "7"}, {"edge", "listen", "127.0.0.1:1"}, {"edge", "public", "true"},
	} {
		t.Setenv(cli.EnvName(c.flag), c.value)
		cmd, _, err := cli.Root().Find(strings.Fields(c.command))
		if err != nil {
			t.Fatal(err)
		}
		if f := cmd.Flags().Lookup(c.flag); f == nil || cli.Settle(cmd) != nil || f.Changed {
			t.Errorf("%s sets --%s of %s", cli.EnvName(c.flag), c.flag, c.command)
		}
	}
	serve, _, err := cli.Root().Find([]string{"serve"})
	if err != nil || cli.Settle(serve) != nil || serve.Flags().Lookup("id").Value.String() != "7" {
		t.Errorf("HOLDFAST_ID does not set the --id of serve: %v", err)
	}
}

// The configuration file that the document shows is one.
func TestDocument_Config(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "```yaml\n")
	text, _, _ := strings.Cut(rest, "```")
	values, err := cli.ParseConfig(text)
	if !ok || err != nil || values["owner"] != "nightly jobs" || values["ttl"] != "10s" {
		t.Errorf("%q is %v, %v", text, values, err)
	}
}
