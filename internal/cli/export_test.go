package cli

import (
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Run is Main with other files, without the warden.
func Run(in, out, errOut *os.File, args ...string) int {
	return (&app{in: in, out: out, errOut: errOut}).main(args)
}

// ParseConfig reads a configuration file.
var ParseConfig = parseConfig

// SettingNames are the flags that environment and file can set.
var SettingNames = settingNames

// EnvName is the variable of a flag.
var EnvName = envName

// Root is the command line with all commands.
func Root() *cobra.Command { return (&app{}).root() }

// Settle sets what a command line left open.
func Settle(cmd *cobra.Command) error { return (&app{}).settle(cmd) }

// Nearest are the words that a mistyped one may have meant.
var Nearest = nearest

// Version is what --version prints of a build.
func Version(info *debug.BuildInfo) string {
	v := versionJSON{Go: "go", System: "linux/amd64"}
	v.from(info)
	return v.String()
}

// Argument is a name as a hint shows it behind a command.
var Argument = argument
