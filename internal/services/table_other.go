//go:build unix && !linux

package services

import (
	"fmt"
	"os/exec"
	"strings"
)

// processes lists what runs on the machine. The directories are not known
// here, so a guard finds no stray processes by theirs.
func processes() ([]process, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,stat=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []process
	for line := range strings.Lines(string(out)) {
		var p process
		var state string
		if _, err := fmt.Sscan(line, &p.pid, &p.parent, &state); err != nil {
			return nil, fmt.Errorf("list processes: parse %q: %w", line, err)
		}
		p.dead, p.frozen = state[0] == 'Z', state[0] == 'T'
		all = append(all, p)
	}
	return all, nil
}
