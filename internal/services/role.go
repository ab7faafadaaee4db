//go:build unix

package services

import (
	"os"
	"os/exec"
)

// The test binary is also the program of two child processes, told apart by
// the name it is started under.
const (
	guardRole = "holdfast-test-guard"
	natsRole  = "holdfast-test-nats"
)

func init() {
	switch os.Args[0] {
	case guardRole:
		os.Exit(guardMain(os.Args[1]))
	case natsRole:
		os.Exit(natsMain(os.Args[1]))
	}
}

// reexec prepares the running binary under the name of a role.
func reexec(role, argument string) *exec.Cmd {
	self, err := os.Executable()
	return &exec.Cmd{Path: self, Args: []string{role, argument}, Err: err}
}
