package services

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// processes lists what runs on the machine. Processes that end while it looks
// are left out.
func processes() ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := inspect(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

func inspect(pid int) (process, error) {
	state, parent, err := readStat(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)) // unreadable for a zombie
	return process{
		pid: pid, parent: parent, dir: cwd,
		dead:   state == 'Z' || state == 'X',
		frozen: state == 'T' && threadsFrozen(pid),
	}, nil
}

func threadsFrozen(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, stat := range stats {
		if state, _, err := readStat(stat); err == nil && state != 'T' {
			return false
		}
	}
	return true
}

// readStat returns the state letter and the parent. They follow the command,
// which stands in parentheses and may hold any byte.
func readStat(path string) (state byte, parent int, err error) {
	line, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(fields) < 2 {
		return 0, 0, fmt.Errorf("read %s: no state in %q", path, line)
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent, err
}
