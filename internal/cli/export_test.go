package cli

import "os"

// Run is Main with other files, without the warden.
func Run(in, out, errOut *os.File, args ...string) int {
	return (&app{in: in, out: out, errOut: errOut}).main(args)
}

// ParseConfig reads a configuration file.
var ParseConfig = parseConfig
