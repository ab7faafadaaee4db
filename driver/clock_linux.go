package driver

import (
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// suspended is how long the machine has slept since it booted: BOOTTIME counts
// that, MONOTONIC does not. It is read first, so that a pause between the two
// readings never looks like a sleep.
func suspended() time.Duration {
	boot, ok1 := readClock(clockBoottime)
	mono, ok2 := readClock(clockMonotonic)
	if !ok1 || !ok2 {
		return 0
	}
	return boot - mono
}

func readClock(id uintptr) (time.Duration, bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno == 0
}
