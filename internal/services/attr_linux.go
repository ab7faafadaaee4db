package services

import "syscall"

// attributes of a server process: killed with the thread that started it, out
// of reach of the terminal's Ctrl-C.
func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: as}
}
