//go:build unix

package cli

import (
	"os"
	"syscall"
)

// forCommands are signals that mean nothing to this program.
var forCommands = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}
