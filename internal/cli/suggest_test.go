package cli_test

import (
	"runtime/debug"
	"slices"
	"strings"
	"testing"

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
			if f.Value.Type() != "duration" {
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
