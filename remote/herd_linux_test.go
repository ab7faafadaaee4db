package remote_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

var herd = flag.Int("remote.clients", 200, "how many programs TestHerd lets come back at once")

const (
	herdTTL    = 30 * time.Second
	herdOutage = 5 * time.Second
	// herdSoon is how soon an unrelated call is answered again; a small herd proves it on machines
	// that stand still for a while, which no figure of theirs tells.
	herdSoon, herdLarge = 2 * time.Second, 1000
)

// TestHerd has many programs, each with a hold, lose their server at once for a
// while: none loses its hold, they make hardly more connections than there are of
// them, and an unrelated call is soon answered again. A machine so busy that the
// server takes much longer to come back proves nothing.
func TestHerd(t *testing.T) {
	t.Parallel() // it mostly waits
	services.Struck(t, 1, 1, func(int) bool { return loseServer(t, *herd) })
}

func loseServer(t *testing.T, n int) (struck bool) {
	dir, addr := shelf(t), services.Addr(t)
	env := []string{serveEnv + "=" + dir, addrEnv + "=" + addr}
	_, pid := services.Again(t, env...)
	began := time.Now()
	holds, leave := holdAll(t, addr, n)
	t.Logf("%d clients hold after %s", n, time.Since(began).Round(time.Millisecond))
	// It does not share its dials with the others, as another program would not.
	bystander := openAt(t, strings.Replace(addr, "127.0.0.1", "localhost", 1))
	lock(t, bystander, "x")
	<-time.After(herdTTL / 3) // beats are spread
	before := sockets(t, addr)

	killed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-time.After(herdOutage)
	_, pid = services.Again(t, env...)
	defer leave()
	gone := time.Since(killed)
	t.Logf("the server was gone for %s", gone.Round(time.Millisecond))
	most := comeBack(t, bystander, addr, pid, func() bool { return renewed(holds, killed) })
	lost := 0
	for _, h := range holds {
		if h.Err() != nil {
			lost++
		}
	}
	t.Logf("%d of %d lost; sockets before %d, most %d, now %d", lost, n, before, most, sockets(t, addr))
	struck = gone < herdOutage+time.Second
	if struck && lost > 0 || most > 6*n/5 {
		t.Error("want none lost and 1.2 sockets each at most")
	}
	return struck
}

// renewed says whether each hold was renewed after a moment.
func renewed(holds []*holdfast.Hold, since time.Time) bool {
	return !slices.ContainsFunc(holds, func(h *holdfast.Hold) bool {
		d, ok := h.Deadline()
		return !ok || d.Before(since.Add(herdTTL))
	})
}

// holdAll has n clients that hold one lock each, until the function it returns is
// called.
func holdAll(t *testing.T, addr string, n int) (holds []*holdfast.Hold, leave func()) {
	holds = make([]*holdfast.Hold, n)
	spaces := make([]*holdfast.Space, n)
	var all sync.WaitGroup
	for i := range holds {
		spaces[i] = openAt(t, addr)
		all.Go(func() {
			h, err := spaces[i].Mutex("m"+strconv.Itoa(i), holdfast.TTL(herdTTL)).Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			holds[i] = h
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return holds, func() {
		for _, s := range spaces {
			all.Go(func() { _ = s.Close() })
		}
		all.Wait()
	}
}

// comeBack sees how long a server that has just come back keeps a bystander waiting,
// and how many connections it has at most until all sessions are renewed, or must have been.
func comeBack(t *testing.T, bystander *holdfast.Space, addr string, pid int, renewed func() bool) (most int) {
	began, waited := time.Now(), waitedFor(t, os.Getpid(), pid)
	answer, answered := begin(t, bystander, "y"), false
	for end := began.Add(herdTTL + 2*time.Second); time.Now().Before(end) && !(answered && renewed()); <-time.After(500 * time.Millisecond) {
		most = max(most, sockets(t, addr))
		select {
		case err := <-answer:
			answered = true
			back, busy := time.Since(began), waitedFor(t, os.Getpid(), pid)-waited
			t.Logf("the bystander is back within %s, while threads were kept from running for %s", back.Round(time.Millisecond), busy.Round(time.Millisecond))
			limit := herdSoon + busy
			if *herd < herdLarge {
				limit = max(limit, herdTTL)
			}
			if err != nil || back > limit {
				t.Errorf("want it back within %s: %v", limit, err)
			}
		default:
		}
	}
	if !answered {
		t.Errorf("the bystander is not answered within %s", time.Since(began))
	}
	return most
}

// waitedFor is how long threads of processes have been ready to run and were not let.
func waitedFor(t *testing.T, pids ...int) (d time.Duration) {
	for _, pid := range pids {
		tasks, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range tasks {
			data, _ := os.ReadFile(name) // a thread may have ended
			if f := strings.Fields(string(data)); len(f) > 1 {
				n, _ := strconv.ParseInt(f[1], 10, 64)
				d += time.Duration(n)
			}
		}
	}
	return d
}

// sockets are the connections to an address that programs of this machine have, or
// are about to have.
func sockets(t *testing.T, addr string) (n int) {
	_, port, _ := strings.Cut(addr, ":")
	number, _ := strconv.Atoi(port)
	remote := strings.ToUpper(strconv.FormatInt(int64(number), 16))
	data, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) > 3 && strings.HasSuffix(f[2], ":"+strings.Repeat("0", 4-len(remote))+remote) && (f[3] == "01" || f[3] == "02") {
			n++
		}
	}
	return n
}
