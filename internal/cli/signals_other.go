//go:build !unix

package cli

import "os"

// forCommands are signals that mean nothing to this program: there are none here.
var forCommands []os.Signal
