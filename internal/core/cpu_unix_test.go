//go:build unix

package core_test

import (
	"syscall"
	"time"
)

// cpu is the processor time that the program has used: what others do on the
// machine does not count.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
