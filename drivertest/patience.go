package drivertest

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// patience is how long a case may take that takes at most timeout on an idle machine: on
// one that has more to do than it has processors, as many times longer.
func patience(timeout time.Duration) time.Duration {
	return time.Duration(float64(timeout) * crowding())
}

// crowding is how many programs have wanted each processor in the last minute, at least
// 1, which is also what it is where nobody tells.
func crowding() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 1
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil {
		return 1
	}
	return max(1, load/float64(runtime.NumCPU()))
}
