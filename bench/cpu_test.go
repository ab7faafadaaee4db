package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// spent is the processor time that this program and the servers it started have
// used. It needs Linux; elsewhere only the program's own is known.
func spent() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	sum := time.Duration(r.Utime.Nano() + r.Stime.Nano())
	for _, pid := range offspring(os.Getpid()) {
		sum += onProcessor(pid)
	}
	return sum
}

// onProcessor is the time of a process's first thread: the servers have one that
// works.
func onProcessor(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0 // it has ended
	}
	first, _, _ := strings.Cut(string(text), " ")
	n, _ := strconv.ParseInt(first, 10, 64)
	return time.Duration(n)
}

// offspring are the processes below one.
func offspring(of int) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	below := map[int][]int{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		after := string(text[strings.LastIndexByte(string(text), ')')+1:])
		if fields := strings.Fields(after); len(fields) > 1 {
			parent, _ := strconv.Atoi(fields[1])
			below[parent] = append(below[parent], pid)
		}
	}
	var all []int
	for next := below[of]; len(next) > 0; {
		all = append(all, next...)
		var more []int
		for _, pid := range next {
			more = append(more, below[pid]...)
		}
		next = more
	}
	return all
}
