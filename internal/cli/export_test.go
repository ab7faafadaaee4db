package cli

import (
	"os"

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

// Root is the command line with all commands.
func Root() *cobra.Command { return (&app{}).root() }
