package cli_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/cli"
)

// here runs the program in this process, so that it shares a memory with the
// test, and returns its code and what it says.
func here(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	file := func(name string) *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	in, out, errOut := file("in"), file("out"), file("err")
	code = cli.Run(in, out, errOut, args...)
	text := func(f *os.File) string {
		defer f.Close()
		_, _ = f.Seek(0, io.SeekStart)
		b, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	in.Close()
	return code, text(out), text(errOut)
}

// release --force ends the one hold that there is, or the one whose token is
// given; never another.
func TestRelease(t *testing.T) {
	const url = "mem://release"
	s, err := holdfast.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := s.Semaphore("x", 2)
	first, err := m.Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	second, err := m.Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if code, _, text := here(t, "--url", url, "release", "--force", "x"); code != 64 || !strings.Contains(text, "2 hold it") {
		t.Errorf("two hold it and no token is given: %d %s", code, text)
	}
	code, text, _ := here(t, "--url", url, "release", "--force", "--token", token(first), "x")
	if code != 0 || !strings.Contains(text, "the hold with token "+token(first)+" is ended") {
		t.Errorf("release by token: %d %s", code, text)
	}
	<-first.Done()
	if !errors.Is(first.Err(), holdfast.ErrLost) || second.Err() != nil {
		t.Errorf("the first is %v, the second %v; want only the first lost", first.Err(), second.Err())
	}
	_ = first.Release()
	code, text, _ = here(t, "--url", url, "--json", "release", "--force", "--now", "x")
	if code != 0 || !strings.Contains(text, `"token":`+token(second)) {
		t.Errorf("release of the only one: %d %s", code, text)
	}
	<-second.Done()
	if code, _, text := here(t, "--url", url, "release", "--force", "--token", token(second), "x"); code == 0 {
		t.Errorf("a hold that is over is ended again: %s", text)
	}
}

func token(h *holdfast.Hold) string { return strconv.FormatUint(uint64(h.Token()), 10) }

// A host without a port is asked on the one that nodes serve on by habit.
func TestDefaultPort(t *testing.T) {
	_, out, text := here(t, "--url", "holdfast://127.0.0.1", "--timeout", "1s", "status")
	if !strings.Contains(out, "127.0.0.1:7420") {
		t.Errorf("status says %s%s", out, text)
	}
}

// Every command says in its help what it is for and how it is used.
func TestHelp(t *testing.T) {
	for _, c := range all(cli.Root()) {
		if c.Name() == "help" {
			continue
		}
		if c.Short == "" || c.Runnable() && !c.HasSubCommands() && c.Example == "" {
			t.Errorf("%s: no description or no example", c.CommandPath())
		}
		if !strings.Contains(c.Example, "holdfast") && c.Example != "" {
			t.Errorf("%s: the example does not use the program", c.CommandPath())
		}
		if code, out, _ := here(t, append(strings.Fields(c.CommandPath())[1:], "--help")...); code != 0 || !strings.Contains(out, "Usage:") {
			t.Errorf("%s --help: %d %s", c.CommandPath(), code, out)
		}
	}
}

// Every setting is a flag, and none is a wish about names.
func TestSettingNames(t *testing.T) {
	commands := all(cli.Root())
	for _, name := range cli.SettingNames {
		found := false
		for _, c := range commands {
			found = found || c.Flags().Lookup(name) != nil || c.PersistentFlags().Lookup(name) != nil
		}
		if !found {
			t.Errorf("the setting %s is no flag", name)
		}
	}
}

func all(c *cobra.Command) []*cobra.Command {
	found := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		found = append(found, all(sub)...)
	}
	return found
}

func FuzzParseConfig(f *testing.F) {
	for _, seed := range []string{"", "url: mem:", "# only a comment", "ttl: 5s # short\nurl: \"file:///a b\"\n", "url:", "url mem:", " url: x", "url: \"", "json: true\r\n", "url: a\nurl: b", "owner: \"a\\n\"", ":", "url: #", "owner: 'a''b' # c", "owner: 'a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := cli.ParseConfig(text)
		if err != nil {
			if values != nil {
				t.Errorf("%q: both values and %v", text, err)
			}
			return
		}
		for name, value := range values {
			again, err := cli.ParseConfig(name + ": " + strconv.Quote(value))
			if err != nil || again[name] != value {
				t.Errorf("%q sets %s to %q, which is read again as %q, %v", text, name, value, again[name], err)
			}
		}
	})
}

// However many names and keys there are, a shell is given a few, and at once.
func TestCompletion_Many(t *testing.T) {
	const url = "mem://completion"
	s, err := holdfast.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 3000 {
		name := "jobs/" + strconv.Itoa(i)
		hold, err := s.Mutex(name).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer hold.Release()
		if _, err := s.KV().Put(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, words := range [][]string{{"show", "jobs/"}, {"lock", ""}, {"kv", "get", "jobs/"}} {
		_, out, _ := here(t, append([]string{"__complete", "--url", url}, words...)...)
		if n := strings.Count(out, "jobs/"); n != 200 {
			t.Errorf("%v: %d words are suggested", words, n)
		}
	}
	if _, out, _ := here(t, "__complete", "--url", url, "show", "jobs/2999"); !strings.HasPrefix(out, "jobs/2999\tmutex") {
		t.Errorf("the name is completed as %s", out)
	}
}
