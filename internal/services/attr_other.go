//go:build unix && !linux

package services

import "syscall"

// attributes of a server process: out of reach of the terminal's Ctrl-C.
func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: as}
}
