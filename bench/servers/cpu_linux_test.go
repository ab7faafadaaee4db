package servers

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/services"
)

// metering tells the processor time of servers, with their children, and of this
// program.
func metering(servers ...*services.Process) meter {
	return func() (server, client time.Duration) {
		for _, s := range servers {
			for _, pid := range family(s.Pid()) {
				server += onProcessor(pid)
			}
		}
		return server, onProcessor(os.Getpid())
	}
}

// onProcessor is the processor time of a process with all its threads, also of
// those that have ended; 0 if it has ended itself.
func onProcessor(pid int) time.Duration {
	const allThreads = 2 // the kernel's clock of a process by its number
	var t unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|allThreads), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// family is a process and its children.
func family(pid int) []int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	pids := []int{pid}
	for _, f := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(f); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// resident is how many bytes of memory a process has.
func resident(t *testing.T, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * float64(os.Getpagesize())
}

func TestOnProcessor(t *testing.T) {
	before := onProcessor(os.Getpid())
	for began := time.Now(); onProcessor(os.Getpid()) < before+20*time.Millisecond; {
		if time.Since(began) > time.Minute {
			t.Fatal("a program that works for a minute uses no processor time")
		}
	}
	if onProcessor(1<<22) != 0 { // beyond the greatest number that Linux gives
		t.Error("a process that does not exist uses processor time")
	}
}
