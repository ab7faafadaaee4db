//go:build unix && !linux

package services_test

import (
	"os/exec"
	"strconv"
	"strings"
)

// alive reports whether a process exists and has not ended.
func alive(pid int) bool {
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(string(state), "Z")
}
