package cli_test

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/internal/cli"
)

// Every flag of a time that is given a bare number asks whether seconds were meant,
// and nothing is done.
func TestDurationsHaveAUnit(t *testing.T) {
	seen := 0
	for _, c := range all(cli.Root()) {
		path := strings.Fields(c.CommandPath())[1:]
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "duration" || c.Name() == "edge" && f.Name == "window" { // which takes seconds, too
				return
			}
			seen++
			want := "hint: did you mean --" + f.Name + " 5s?"
			if code, out, text := here(t, append(path, "--"+f.Name, "5")...); code != 64 || out != "" || !strings.Contains(text, want) {
				t.Errorf("%v --%s 5: %d %s%s", path, f.Name, code, out, text)
			}
		})
	}
	if seen < 15 {
		t.Errorf("only %d flags of a time are found", seen)
	}
}

// What a hint suggests is understood when it is pasted: a duration by every flag.
func TestSuggestedDurationsParse(t *testing.T) {
	for value, want := range map[string]string{
		"1e9": "1000000000s", "1.5e1": "15s", "5e-1": "0.5s", "0x10": "", "1e300": "", "inf": "", "NaN": "", "1_000": "1000s", "+5": "5s", "00": "", "99999999999": "",
	} {
		code, _, text := here(t, "lock", "--wait", value, "x", "--", "true")
		_, said, _ := strings.Cut(text, "did you mean --wait ")
		got, _, _ := strings.Cut(said, "?")
		if code != 64 || got != want {
			t.Errorf("--wait %s: %d, suggested is %q, want %q", value, code, got, want)
		}
		if _, err := time.ParseDuration(got); got != "" && err != nil {
			t.Errorf("--wait %s: %v", value, err)
		}
	}
}

// A name is pasted as it is, whatever a shell makes of its letters.
func TestSuggestedNamesArePasted(t *testing.T) {
	for _, name := range []string{"plain", "a b", "it's", "-x", "$HOME", "", "é/1", "a;b", "`x`", "--", "*", "a\nb", "#x", "~"} {
		out, err := exec.Command("sh", "-c", "printf '%s|' "+cli.Argument(name)).Output()
		if got := strings.TrimPrefix(string(out), "--|"); err != nil || got != name+"|" {
			t.Errorf("%q is pasted as %s, which a shell reads as %q %v", name, cli.Argument(name), got, err)
		}
		code, _, text := here(t, append([]string{"counter", "get"}, strings.Fields(cli.Argument(name))...)...)
		if code == 64 && strings.Contains(text, "flag") {
			t.Errorf("%q is taken for a flag: %s", name, text)
		}
	}
}

// Every command and flag that a message, a hint or a help text of the program names is
// there.
func TestMessagesNameWhatIsThere(t *testing.T) {
	commands, flags := map[string]bool{"holdfast help": true}, map[string]bool{"help": true}
	for _, c := range all(cli.Root()) {
		commands[c.CommandPath()] = true
		c.InheritedFlags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
	}
	seen := 0
	for _, text := range literals(t) {
		for _, m := range regexp.MustCompile(`--([a-z][a-z-]+)`).FindAllStringSubmatch(text, -1) {
			if seen++; !flags[m[1]] {
				t.Errorf("no command has the flag --%s: %q", m[1], text)
			}
		}
		for _, m := range regexp.MustCompile(`(?:^|see |: |, or |with |  )(holdfast [a-z]+)( [a-z]+)?`).FindAllStringSubmatch(text, -1) {
			if seen++; !commands[m[1]] && !prose[m[1]] {
				t.Errorf("%s is no command: %q", m[1], text)
			}
			if group := m[1]; groups[group] && m[2] != "" && !commands[group+m[2]] {
				t.Errorf("%s%s is no command: %q", group, m[2], text)
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d commands and flags are named", seen)
	}
}

// groups are the commands with commands below them, prose what only looks like one.
var (
	groups = map[string]bool{"holdfast kv": true, "holdfast counter": true, "holdfast seq": true, "holdfast session": true, "holdfast member": true, "holdfast snapshot": true}
	prose  = map[string]bool{"holdfast takes": true, "holdfast serves": true}
)

// literals are the texts in the sources of the program.
func literals(t *testing.T) (texts []string) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == gotoken.STRING {
				text, _ := strconv.Unquote(lit.Value)
				texts = append(texts, text)
			}
			return true
		})
	}
	return texts
}

func TestNearest(t *testing.T) {
	words := []string{"lock", "rlock", "wlock", "ls", "seq", "sem", "serve", "session", "show", "snapshot", "status", "sweep", "kv"}
	for word, want := range map[string]string{
		"lokc": "lock", "look": "lock", "lck": "lock", "LOCK": "lock", "locck": "lock", "sess": "session", "srever": "serve",
		"se": "seq sem", "statsu": "status", "l": "ls", "k": "kv", "x": "", "": "", "xyzzy": "", "snapshto": "snapshot",
	} {
		if got := strings.Join(cli.Nearest(word, words), " "); got != want {
			t.Errorf("%q is near %q, want %q", word, got, want)
		}
	}
	many := slices.Repeat([]string{"lock"}, 5000)
	if got := cli.Nearest("lokc", many); len(got) != 3 {
		t.Errorf("%d words are suggested", len(got))
	}
}

// The version tells the release, the revision and whether the source was changed.
func TestVersion(t *testing.T) {
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
	}}
	if got, want := cli.Version(info), "holdfast v1.2.3 revision 0123456789abcdef modified go linux/amd64"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	info.Settings[1].Value = "false"
	if got, want := cli.Version(info), "holdfast v1.2.3 revision 0123456789abcdef go linux/amd64"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
