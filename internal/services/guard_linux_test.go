package services_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services"
)

const victimVariable = "HOLDFAST_SERVICES_VICTIM"

// traces are what a test binary leaves on the machine while it runs.
type traces struct {
	Dir     string
	Pids    []int
	Segment string
}

// TestKilledTestBinaryLeavesNothing runs itself as a second process that starts
// servers, freezes some, and is then killed without a chance to clean up.
func TestKilledTestBinaryLeavesNothing(t *testing.T) {
	t.Parallel()
	if os.Getenv(victimVariable) != "" {
		r, pg, n := services.Redis(t), services.PostgreSQL(t), services.NATS(t)
		conn := pgConn(t, pg.URL("postgres"))
		cluster := one[string](t, conn, "SHOW data_directory")
		backend := one[int](t, conn, "SELECT pg_backend_pid()")
		pg.Stop()
		n.Stop()
		confess(t, traces{filepath.Dir(filepath.Dir(cluster)), []int{r.Pid(), pg.Pid(), backend, n.Pid()}, sharedMemory(t, cluster)})
	}
	left, kill := victim(t)
	kill()
	awaitEnd(t, left.Pids)
	eventually(t, "end of all in "+left.Dir, func() bool { return len(livingIn(left.Dir)) == 0 })
	eventually(t, "removal of "+left.Dir, func() bool {
		_, err := os.Stat(left.Dir)
		return os.IsNotExist(err)
	})
	if segmentExists(t, left.Segment) {
		t.Errorf("shared memory segment %s is left", left.Segment)
	}
}

// TestServersEndEvenWithoutTheGuard kills the guard first. Then only the kernel
// can end the servers.
func TestServersEndEvenWithoutTheGuard(t *testing.T) {
	t.Parallel()
	if os.Getenv(victimVariable) != "" {
		r, n := services.Redis(t), services.NATS(t)
		n.Stop()
		c := redisClient(t, r.URL())
		config, err := c.Do(t.Context(), c.B().ConfigGet().Parameter("dir").Build()).AsStrMap()
		confess(t, traces{filepath.Dir(must(t, config, err)["dir"]), []int{r.Pid(), n.Pid()}, ""})
	}
	left, kill := victim(t)
	t.Cleanup(func() { os.RemoveAll(left.Dir) })
	guard := guardOf(left.Dir)
	if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
		t.Fatalf("kill guard %d: %v", guard, err)
	}
	awaitEnd(t, []int{guard})
	kill()
	awaitEnd(t, left.Pids)
}

func guardOf(dir string) int {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		line, _ := os.ReadFile(path)
		if strings.HasPrefix(string(line), "holdfast-test-guard\x00"+dir+"\x00") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return -1
}

// victim runs the calling test in a second process up to its confession.
func victim(t *testing.T) (left traces, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), victimVariable+"=1")
	out, err := cmd.StdoutPipe()
	must(t, out, err)
	stdin, err := cmd.StdinPipe() // the victim lives until it is closed, or killed
	must(t, stdin, err)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	t.Cleanup(kill)
	left = readTraces(t, out)
	t.Cleanup(func() {
		for _, pid := range slices.DeleteFunc(left.Pids, func(pid int) bool { return !alive(pid) }) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	for _, pid := range left.Pids {
		if !alive(pid) {
			t.Fatalf("process %d of %+v does not run", pid, left)
		}
	}
	return left, kill
}

func awaitEnd(t *testing.T, pids []int) {
	t.Helper()
	eventually(t, fmt.Sprintf("end of processes %d", pids), func() bool { return !slices.ContainsFunc(pids, alive) })
}

// confess tells the other process what to look for, and waits to be killed.
func confess(t *testing.T, left traces) {
	text, err := json.Marshal(left)
	fmt.Printf("traces %s\n", must(t, text, err))
	_, _ = os.Stdin.Read(make([]byte, 1))
	t.Fatal("the process that should kill this one is gone")
}

func readTraces(t *testing.T, out io.Reader) traces {
	t.Helper()
	var left traces
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "traces "); ok {
			if err := json.Unmarshal([]byte(text), &left); err != nil {
				t.Fatal(err)
			}
			return left
		}
	}
	t.Fatal("the second process told nothing")
	return left
}

// TestServerOutlivesTheThreadThatAskedForIt ends that thread, with which the
// kernel would end a process started on it.
func TestServerOutlivesTheThreadThatAskedForIt(t *testing.T) {
	t.Parallel()
	servers := make(chan *services.RedisServer)
	var thread int
	onMortalThread(func() {
		thread = syscall.Gettid()
		servers <- services.Redis(t)
	})
	s := <-servers
	eventually(t, "end of the thread", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread))
		return os.IsNotExist(err)
	})
	do(t, redisClient(t, s.URL()), "PING")
}

// onMortalThread runs f on a thread that ends with it. The main thread never
// ends; a goroutine that finds itself there leaves the work to another one.
func onMortalThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() == syscall.Getpid() {
			defer runtime.UnlockOSThread()
			onMortalThread(f)
			return
		}
		f() // still locked at its end, which ends the thread
	}()
}

func TestServersRunInTheirOwnDirectoryOnly(t *testing.T) {
	t.Parallel()
	var dir string
	var pid int
	t.Run("use", func(t *testing.T) {
		s := services.Redis(t)
		pid = s.Pid()
		c := redisClient(t, s.URL())
		config, err := c.Do(t.Context(), c.B().ConfigGet().Parameter("dir").Build()).AsStrMap()
		dir = must(t, config, err)["dir"]
		if len(livingIn(dir)) != 1 {
			t.Errorf("processes in %s: %v, want one", dir, livingIn(dir))
		}
	})
	if _, err := os.Stat(dir); !os.IsNotExist(err) || alive(pid) {
		t.Errorf("after the test: directory %s (%v), pid %d alive: %v", dir, err, pid, alive(pid))
	}
}
