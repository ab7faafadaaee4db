//go:build unix

package server_test

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be another process.
func TestMain(m *testing.M) {
	if role := os.Getenv("SERVER_TEST_ROLE"); role != "" {
		if err := roles[role](); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// roles are what another process can be. They report in lines and run until
// they are killed or their standard input ends.
var roles = map[string]func() error{}

// process is another process.
type process struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

// spawn starts a process, which is killed when the test ends.
func spawn(t testing.TB, role string, env ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "SERVER_TEST_ROLE="+role), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // it ends with this process, however that ends
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(p.kill)
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// lastWords kills the process and gives what it had said until then.
func (p *process) lastWords() iter.Seq[string] {
	_ = p.cmd.Process.Kill()
	return func(yield func(string) bool) {
		defer p.kill()
		for p.out.Scan() && yield(p.out.Text()) {
		}
	}
}

// line is what the process says next.
func (p *process) line() string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("the other process said nothing more: %v", p.out.Err())
	}
	return p.out.Text()
}

// used is the processor time that the process has used; it must say nothing else
// meanwhile.
func (p *process) used() time.Duration {
	p.t.Helper()
	if _, err := p.in.Write([]byte{0}); err != nil {
		p.t.Fatal(err)
	}
	line := p.line()
	d, err := time.ParseDuration(line)
	if err != nil {
		p.t.Fatalf("the other process said %q", line)
	}
	return d
}

// untilOrphaned ends a process whose parent has gone. Until then it answers used.
func untilOrphaned() {
	var b [1]byte
	for {
		if _, err := os.Stdin.Read(b[:]); err != nil {
			os.Exit(0)
		}
		fmt.Println(processorTime())
	}
}

// processorTime is what this process has used of it.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
