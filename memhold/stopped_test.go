//go:build unix

package memhold_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
)

// inChild is set in the process that gets stopped.
const inChild = "MEMHOLD_STOPPED_CHILD"

// A process that was stopped for longer than a TTL or MaxHold finds all timers
// late at once. Still every holder knows of its loss before the next is granted:
// its Done is closed when the next Acquire returns.
func TestStoppedProcess(t *testing.T) {
	if os.Getenv(inChild) != "" {
		beStopped(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestStoppedProcess$", "-test.v")
	cmd.Env = append(os.Environ(), inChild+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	for said.Scan() && said.Text() != "ready" {
	}
	signal := func(s syscall.Signal) {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	time.Sleep(1500 * time.Millisecond) // the outage itself
	signal(syscall.SIGCONT)
	for said.Scan() {
		t.Log(said.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// beStopped runs on one processor, busily: when the process goes on, this
// goroutine does, before any timer can, and wants what the holders have lost.
func beStopped(t *testing.T) {
	runtime.GOMAXPROCS(1)
	var lost []<-chan struct{} // Done itself would compare the clock
	a, b := open(t), open(t)
	for i := range 10 {
		ends := []holdfast.HoldOption{holdfast.TTL(time.Second), holdfast.MaxHold(time.Second)}[i%2]
		h := acquire(t, a.Mutex(fmt.Sprint("m", i), ends))
		defer h.Release()
		lost = append(lost, h.Done())
	}
	before := time.Now()
	fmt.Println("\nready")
	for now := before; now.Sub(before) < 500*time.Millisecond; {
		before, now = now, time.Now()
	}
	for i := range lost {
		acquire(t, b.Mutex(fmt.Sprint("m", i)))
		select {
		case <-lost[i]:
		default:
			t.Errorf("m%d was granted before its loss was known", i)
		}
	}
}
