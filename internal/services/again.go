//go:build unix

package services

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Again runs this test program once more, as a process of its own which env tells what
// to be, and returns the first line that it says, and its id. Its standard input ends
// with the test, and with this process however that ends: it has to end then.
func Again(tb testing.TB, env ...string) (line string, pid int) {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
	in, err := cmd.StdinPipe()
	made(tb, err)
	out, err := cmd.StdoutPipe()
	made(tb, err)
	made(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err = bufio.NewReader(out).ReadString('\n')
	made(tb, err)
	return strings.TrimSpace(line), cmd.Process.Pid
}

// Struck runs n trials, so many at once, each again until it has struck or the test has
// failed; more is how often it had to. It is for what a busy machine can prevent.
func Struck(tb testing.TB, n, atOnce int, try func(i int) (struck bool)) (more int) {
	tb.Helper()
	var running sync.WaitGroup
	var tries atomic.Int64
	turn := make(chan struct{}, atOnce)
	for i := range n {
		turn <- struct{}{}
		running.Go(func() {
			defer func() { <-turn }()
			for struck := false; !struck && !tb.Failed(); tries.Add(1) {
				struck = try(i)
			}
		})
	}
	running.Wait()
	return max(int(tries.Load())-n, 0)
}
