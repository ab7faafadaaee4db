package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// settingNames are the flags that the environment and the configuration file can
// set, too. What a command is told about its names is not among them: a command
// that runs under a hold finds HOLDFAST_LOCK and HOLDFAST_TOKEN in its
// environment, and must not take them for wishes.
var settingNames = slices.Concat(
	[]string{"conflict-exit-code", "grace", "json", "meta", "owner", "timeout", "ttl", "url", "wait"}, nodeSettings)

// nodeSettings are those of a node. They are for serve only: flags of other commands have
// some of these names and mean something else.
var nodeSettings = []string{
	"admin", "backup-dir", "backup-every", "backup-keep", "check-every", "cluster-id", "data", "host", "id", "join", "listen",
	"max-calls", "max-data", "max-holds", "max-keys", "max-limit-keys", "max-names", "max-namespaces", "max-queue", "max-sessions", "max-streams", "max-waiters", "max-waits",
	"members", "no-replace", "peer", "peer-ca", "peer-cert", "peer-key", "public", "reserve", "tls-ca", "tls-cert", "tls-client-ca", "tls-key",
}

// settle sets what the command line left open: from the environment, else from
// the file.
func (a *app) settle(cmd *cobra.Command) error {
	file, err := a.readConfig()
	if err != nil {
		return err
	}
	var errs []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Changed && settable(cmd, f) {
			errs = append(errs, setFrom(f, file))
		}
	})
	return errors.Join(errs...)
}

// settable reports whether a flag of a command can be set by what is not on its command
// line. The wait of a restore is none for a turn.
func settable(cmd *cobra.Command, f *pflag.Flag) bool {
	switch {
	case slices.Contains(nodeSettings, f.Name):
		return cmd.Name() == "serve"
	case f.Name == "wait" && cmd.Name() == "restore", tries(cmd, f):
		return false
	}
	return slices.Contains(settingNames, f.Name)
}

// tries: f is the wait of a command that was told not to wait, which says all about it.
func tries(cmd *cobra.Command, f *pflag.Flag) bool {
	return f.Name == "wait" && cmd.Flags().Changed("try")
}

// setFrom sets a flag, as if it had been given.
func setFrom(f *pflag.Flag, file map[string]string) error {
	origin := envName(f.Name)
	value, ok := os.LookupEnv(origin)
	if !ok || value == "" {
		origin = "the configuration file"
		value, ok = file[f.Name]
	}
	if !ok {
		return nil
	}
	if err := f.Value.Set(value); err != nil {
		return usagef(durationHint(f, "", value), "%s sets %s to %q: %w", origin, f.Name, value, err)
	}
	f.Changed = true
	return nil
}

// asksForJSON sets --json as a command line would that was read to its end: programs read the
// mistakes in it, too.
func (a *app) asksForJSON(f *pflag.Flag) {
	words := a.words
	if at := slices.Index(words, "--"); at >= 0 {
		words = words[:at]
	}
	for _, w := range words {
		if value, given := strings.CutPrefix(w+"=true", "--json="); given {
			value, _, _ = strings.Cut(value, "=")
			f.Changed = f.Value.Set(value) == nil
		}
	}
	if !f.Changed {
		file, _ := a.readConfig() // if that is the mistake, it is told
		_ = setFrom(f, file)
	}
}

// envName is the variable of a flag: HOLDFAST_MIN_HOLD of min-hold.
func envName(flag string) string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readConfig reads the configuration file. One that was named has to exist.
func (a *app) readConfig() (map[string]string, error) {
	path, named := a.config, true
	if path == "" {
		path = os.Getenv("HOLDFAST_CONFIG")
	}
	if path == "" {
		path, named = defaultConfig(), false
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the configuration file: %w", err)
	}
	values, err := parseConfig(string(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return values, nil
}

func defaultConfig() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "holdfast", "config.yaml")
}

// parseConfig reads lines "name: value", the part of YAML that settings need;
// values may be quoted, and # begins a comment.
func parseConfig(text string) (map[string]string, error) {
	values := map[string]string{}
	for i, line := range strings.Split(text, "\n") {
		name, value, err := parseLine(line)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		case name == "":
			continue
		case !slices.Contains(settingNames, name):
			return nil, fmt.Errorf("line %d: there is no setting %q; there are %s", i+1, name, strings.Join(settingNames, ", "))
		}
		if _, twice := values[name]; twice {
			return nil, fmt.Errorf("line %d: %q is set twice", i+1, name)
		}
		values[name] = value
	}
	return values, nil
}

// parseLine reads one line; an empty name means that it says nothing.
func parseLine(line string) (name, value string, err error) {
	text := strings.TrimRight(line, " \t\r")
	switch trimmed := strings.TrimLeft(text, " \t"); {
	case trimmed == "" || trimmed[0] == '#':
		return "", "", nil
	case trimmed != text:
		return "", "", fmt.Errorf("%q is indented; settings are lines such as ttl: 10s", trimmed)
	}
	name, value, ok := strings.Cut(text, ":")
	if !ok || name == "" || value != "" && value[0] != ' ' && value[0] != '\t' {
		return "", "", fmt.Errorf("%q is no setting; write name: value", text)
	}
	value, err = parseValue(strings.TrimSpace(value))
	return name, value, err
}

// singleQuoted is a value in single quotes, in which two stand for one, and a comment.
var singleQuoted = regexp.MustCompile(`^'((?:[^']|'')*)'\s*(?:#.*)?$`)

// parseValue takes quotes or a comment off a value.
func parseValue(v string) (string, error) {
	if strings.HasPrefix(v, `"`) {
		quoted, err := strconv.QuotedPrefix(v)
		rest := strings.TrimSpace(strings.TrimPrefix(v, quoted))
		if err != nil || rest != "" && rest[0] != '#' {
			return "", fmt.Errorf("%s is not quoted rightly", v)
		}
		return strconv.Unquote(quoted)
	}
	if strings.HasPrefix(v, "'") {
		quoted := singleQuoted.FindStringSubmatch(v)
		if quoted == nil {
			return "", fmt.Errorf("%s is not quoted rightly", v)
		}
		return strings.ReplaceAll(quoted[1], "''", "'"), nil
	}
	if strings.HasPrefix(v, "#") {
		v = ""
	}
	v, _, _ = strings.Cut(v, " #")
	if v = strings.TrimSpace(v); v == "" {
		return "", errors.New("it sets nothing; write name: value")
	}
	return v, nil
}
