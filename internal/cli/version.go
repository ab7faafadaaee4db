package cli

import (
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// versionJSON is what this program was built from.
type versionJSON struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	System   string `json:"system"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print what this program was built from", Args: cobra.NoArgs, Example: "  holdfast version --json",
		RunE: func(*cobra.Command, []string) error { return a.printVersion() }}
}

// printVersion is version and --version.
func (a *app) printVersion() error {
	v := versionJSON{Version: "(devel)", Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.from(info)
	}
	return a.print().value(v, "%s", v)
}

// String is the version in one line, for people.
func (v versionJSON) String() string {
	parts := []string{"holdfast", v.Version}
	if v.Revision != "" {
		parts = append(parts, "revision", v.Revision)
	}
	if v.Modified {
		parts = append(parts, "modified")
	}
	return strings.Join(append(parts, v.Go, v.System), " ")
}

// from notes what the build says of itself.
func (v *versionJSON) from(info *debug.BuildInfo) {
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
}
