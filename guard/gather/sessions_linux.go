package gather

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// running is a process as the kernel tells it.
type running struct {
	alive bool
	start uint64 // in ticks since the machine was started
	began time.Time
}

// ticks is how many there are in a second; Linux has told programs 100 on every platform
// that Go runs on.
const ticks = 100

func processOf(pid int) (p running, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	// The name in parentheses may have anything in it: the fields begin after the last.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return p, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	if p.start, err = strconv.ParseUint(fields[19], 10, 64); err != nil {
		return p, err
	}
	// One with a main thread that has ended is a zombie by its state, and works on if it has others.
	alone := fields[17] == "1" || fields[17] == "0"
	if p.alive = fields[0] != "X" && !(fields[0] == "Z" && alone) && !isThread(pid); !p.alive {
		return p, nil
	}
	p.began, err = bootTime()
	p.began = p.began.Add(time.Duration(p.start/ticks) * time.Second)
	return p, err
}

// isThread: it is the number of a thread of a process that has another, of which the kernel tells as of a process.
func isThread(id int) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", id))
	_, rest, found := strings.Cut(string(b), "\nTgid:\t")
	group, _, _ := strings.Cut(rest, "\n")
	return found && group != strconv.Itoa(id)
}

func bootTime() (time.Time, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}, err
	}
	_, rest, _ := strings.Cut(string(b), "\nbtime ")
	line, _, _ := strings.Cut(rest, "\n")
	sec, err := strconv.ParseInt(line, 10, 64)
	return time.Unix(sec, 0), err
}
