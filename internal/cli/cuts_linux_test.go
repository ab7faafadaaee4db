package cli_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

var cuts = flag.Int("cli.cuts", 5, "how many links of holdfast lock TestCuts cuts, 50 at a time")

const (
	cutTTL    = 5 * time.Second
	cutAtOnce = 50
	beatEvery = 10 * time.Millisecond
)

func init() { played["beat"] = beat }

// uptime is a clock that all processes of the machine share.
func uptime() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic("no CLOCK_MONOTONIC: " + errno.Error())
	}
	return time.Duration(ts.Nano())
}

// beat is a command that writes the time into a file, over and over. Told
// "stubborn" it does not end when it is asked to.
func beat() {
	if len(os.Args) > 2 && os.Args[2] == "stubborn" {
		ossignal.Ignore(syscall.SIGTERM)
	}
	f, err := os.OpenFile(os.Args[1], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	for range time.Tick(beatEvery) {
		if _, err := f.Write(binary.LittleEndian.AppendUint64(nil, uint64(uptime()))); err != nil {
			panic(err)
		}
	}
}

// beats are the times that a command has written.
func beats(path string) (list []time.Duration) {
	data, _ := os.ReadFile(path) // none yet: no beats
	for len(data) >= 8 {
		list = append(list, time.Duration(binary.LittleEndian.Uint64(data)))
		data = data[8:]
	}
	return list
}

// TestCuts cuts the links of holdfast lock at random moments, while others wait.
// The command writes until it is killed: nothing of it may be left, and nothing
// of it written, when the next is granted.
func TestCuts(t *testing.T) {
	t.Parallel()
	addr, dir := services.Addr(t), t.TempDir()
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, "d"), "--listen", addr}}
	n.start()
	defer n.signal(syscall.SIGTERM)
	next, err := holdfast.Open(t.Context(), "holdfast://"+addr)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	margins := make([]time.Duration, *cuts)
	more := services.Struck(t, len(margins), cutAtOnce, func(i int) (struck bool) {
		c := &cutCommand{t: t, name: fmt.Sprint("m", i), file: filepath.Join(dir, fmt.Sprint("beats", i)), link: services.Proxy(t, addr)}
		if i%2 == 1 {
			c.how = "stubborn"
		}
		margins[i], struck = c.try(next)
		return struck
	})
	if more > 0 {
		t.Logf("proof: holdfast lock: %d more holds were lost before their links could be cut, on a busy machine; they are not counted", more)
	}
	reportCuts(t, margins)
}

// cutCommand is one command under a lock whose link is cut.
type cutCommand struct {
	t               *testing.T
	name, file, how string
	link            *services.Link
}

// try returns how long before the next grant the command's last sign of life was;
// false: on a busy machine the hold did not last until the cut, or nobody can tell what the clock
// decides, since the processes of the machine were held up.
func (c *cutCommand) try(next *holdfast.Space) (margin time.Duration, struck bool) {
	_ = os.Remove(c.file)
	cmd := exec.Command("holdfast", "--url", "holdfast://"+c.link.Addr(), "lock", "--ttl", cutTTL.String(), c.name, "--", "beat", c.file, c.how)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Dir(c.file))
	ended, err := begin(cmd)
	if err != nil {
		c.t.Error(err)
		return 0, false
	}
	defer func() { c.link.Heal(); <-ended }()
	for len(beats(c.file)) == 0 { // until it runs
		select {
		case err := <-ended:
			ended <- err
			if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 76 {
				c.t.Errorf("holdfast lock ended before its command ran: %v", err)
			}
			return 0, false
		case <-time.After(beatEvery):
		}
	}
	pids, heldUp := groupOf(c.file), lookAtMachine()
	hold, granted, struck, err := c.cutAndWait(next)
	late := heldUp() > cutTTL/40
	if err != nil {
		if !errors.Is(err, holdfast.ErrLost) {
			c.t.Errorf("the next: %v", err)
		}
		return 0, false
	}
	defer hold.Release()
	alive := slices.DeleteFunc(pids, func(pid int) bool { return !alive(pid) })
	list := beats(c.file)
	if last := list[len(list)-1]; len(alive) > 0 || last > granted {
		if late {
			return 0, false
		}
		c.t.Errorf("the next was granted at %s; then processes %v were alive, and the command's last sign of life is from %s", granted, alive, last)
	}
	return granted - list[len(list)-1], struck && len(pids) > 0
}

// begin starts a program and tells its end.
func begin(cmd *exec.Cmd) (ended chan error, err error) {
	ended = make(chan error, 1)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { ended <- cmd.Wait() }()
	return ended, nil
}

// cutAndWait cuts the link while next waits, and tells when it was granted; not
// struck: it was before.
func (c *cutCommand) cutAndWait(next *holdfast.Space) (hold *holdfast.Hold, granted time.Duration, struck bool, err error) {
	waits, done := make(chan struct{}), make(chan struct{})
	go func() {
		hold, err = next.Mutex(c.name, holdfast.OnWait(func(int) { close(waits) })).Acquire(c.t.Context())
		granted = uptime()
		close(done)
	}()
	select {
	case <-waits:
		<-time.After(rand.N(cutTTL)) // a random moment between renewals
	case <-done:
	}
	cut := uptime()
	c.link.Cut()
	if rand.N(2) == 0 {
		c.link.Break()
	}
	<-done
	return hold, granted, cut < granted, err
}

// groupOf finds the processes that write to a file.
func groupOf(file string) (pids []int) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range commands {
		line, _ := os.ReadFile(path)
		if words := strings.Split(string(line), "\x00"); len(words) > 1 && words[1] == file {
			var pid int
			_, _ = fmt.Sscanf(path, "/proc/%d/cmdline", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

// alive: a process that can still do something; a zombie cannot.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func reportCuts(t *testing.T, margins []time.Duration) {
	for how, from := range []string{"that end when asked", "that have to be killed"} {
		var list []time.Duration
		for i := how; i < len(margins); i += 2 {
			list = append(list, margins[i])
		}
		if slices.Sort(list); len(list) == 0 {
			continue
		}
		rank := func(p int) time.Duration {
			return list[min(len(list)*p/100, len(list)-1)].Round(time.Millisecond)
		}
		t.Logf("proof: holdfast lock: %d links cut, TTL %s, commands %s: the last sign of life came before the next grant by least %s, median %s, most %s",
			len(list), cutTTL, from, rank(0), rank(50), rank(100))
	}
}

// A server that is killed and comes back finds the hold where it was, and the
// command goes on; one that stays away takes the command with it.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	addr, dir := services.Addr(t), t.TempDir()
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, "d"), "--listen", addr}}
	n.start()
	url, file := "holdfast://"+addr, filepath.Join(dir, "beats")
	long := program(t, dir, "--url", url, "lock", "--ttl", "1h", "x", "--", "beat", file)
	ended, err := begin(long)
	if err != nil {
		t.Fatal(err)
	}
	awaitBeat(t, file, 0)
	before := holderOf(t, url)
	_ = n.signal(syscall.SIGKILL)
	n.start()
	if after := holderOf(t, url); after == 0 || after != before {
		t.Errorf("held with token %d before the server was killed, with %d afterwards", before, after)
	}
	awaitBeat(t, file, uptime())
	signal(t, long.Process.Pid, syscall.SIGTERM)
	<-ended

	file += "2"
	var pids []int
	services.Struck(t, 1, 1, func(int) (struck bool) { // on a busy machine a hold of 5 s may be lost before its command runs
		ended, pids = beating(t, file, program(t, dir, "--url", url, "lock", "--ttl", cutTTL.String(), "y", "--", "beat", file, "stubborn"))
		return len(pids) > 0
	})
	_ = n.signal(syscall.SIGKILL)
	if code := codeOf(t, <-ended); code != 76 {
		t.Errorf("holdfast lock without a server ends with %d, want 76", code)
	}
	if slices.ContainsFunc(pids, alive) {
		t.Errorf("of the command's processes %v some go on", pids)
	}
}

// beating starts a program that holds, and has a command write to a file, and tells its end and the processes that
// write; none: the hold was lost before.
func beating(t *testing.T, file string, holder *exec.Cmd) (ended chan error, pids []int) {
	t.Helper()
	ended, err := begin(holder)
	if err != nil {
		t.Fatal(err)
	}
	for len(beats(file)) == 0 {
		select {
		case err := <-ended:
			if code := codeOf(t, err); code != 76 {
				t.Fatalf("holdfast lock ended with %d before its command ran", code)
			}
			return nil, nil
		case <-time.After(beatEvery):
		}
	}
	if pids = groupOf(file); len(pids) == 0 {
		<-ended
		_ = os.Remove(file)
	}
	return ended, pids
}

// awaitBeat returns when the command has written after a time.
func awaitBeat(t *testing.T, file string, after time.Duration) {
	t.Helper()
	for {
		if list := beats(file); len(list) > 0 && list[len(list)-1] > after {
			return
		}
		select {
		case <-time.After(beatEvery):
		case <-t.Context().Done():
			t.Fatal("the command does not write")
		}
	}
}

// holderOf is the token of the holder of x.
func holderOf(t *testing.T, url string) uint64 {
	t.Helper()
	var seen struct{ Holders []struct{ Token uint64 } }
	if text := does(t, url, "--json", "show", "x"); json.Unmarshal([]byte(text), &seen) != nil || len(seen.Holders) != 1 {
		t.Fatalf("x is %s", text)
	}
	return seen.Holders[0].Token
}
