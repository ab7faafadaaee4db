package filehold_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/filehold"
)

// TestMain lets the test binary be another process on a directory: it then does
// what it reads, line by line, and answers.
func TestMain(m *testing.M) {
	if mask, err := strconv.ParseInt(os.Getenv("FILEHOLD_UMASK"), 8, 32); err == nil {
		syscall.Umask(int(mask))
	}
	if role := os.Getenv("FILEHOLD_ROLE"); role != "" {
		if err := roles[role](os.Getenv("FILEHOLD_DIR")); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// roles are what another process can be.
var roles = map[string]func(dir string) error{}

func init() {
	roles["servant"] = serve
}

// process is another process on a directory.
type process struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// spawn starts a process; it is killed when the test ends.
func spawn(t testing.TB, role, dir string, env ...string) *process {
	t.Helper()
	return spawnBy(t, role, dir, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, env...) })
}

// spawnBy is spawn with a command that is changed.
func spawnBy(t testing.TB, role, dir string, change func(*exec.Cmd)) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FILEHOLD_ROLE="+role, "FILEHOLD_DIR="+dir)
	cmd.Stderr = os.Stderr
	change(cmd)
	in, err := cmd.StdinPipe()
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

// signal stops it or lets it go on.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// send gives an order and does not wait for its answer.
func (p *process) send(order string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, order); err != nil {
		p.t.Fatal(err)
	}
}

// line is the next answer. A process that has none for long is killed.
func (p *process) line() string {
	p.t.Helper()
	late := time.AfterFunc(2*time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if !p.out.Scan() {
		p.t.Fatalf("the other process said nothing more: %v", p.out.Err())
	}
	return p.out.Text()
}

// do gives an order and returns its answer, which is no error.
func (p *process) do(order string) string {
	p.t.Helper()
	p.send(order)
	answer := p.line()
	if strings.HasPrefix(answer, "error") {
		p.t.Fatalf("%s: %s", order, answer)
	}
	return answer
}

// serve does orders: each is a verb and a name.
func serve(dir string) error {
	d, err := filehold.NewWith(dir, func(x *filehold.Seams) {
		if os.Getenv("FILEHOLD_COMPACT") != "" {
			x.CompactAt = 8 << 10
		}
		if _, err := fmt.Sscan(os.Getenv("FILEHOLD_VERSION"), &x.Version); err != nil {
			x.Version = filehold.Version
		}
		if mode, err := strconv.ParseUint(os.Getenv("FILEHOLD_MODE"), 8, 32); err == nil {
			x.Perm = fs.FileMode(mode)
		}
	})
	if err != nil {
		return err
	}
	s, err := holdfast.New(d, holdfast.Owner("servant"))
	if err != nil {
		return err
	}
	v := &servant{s: s, holds: map[string]*holdfast.Hold{}}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		verb, name, _ := strings.Cut(in.Text(), " ")
		v.order(verb, name)
	}
	return s.Close()
}

type servant struct {
	s     *holdfast.Space
	mu    sync.Mutex
	holds map[string]*holdfast.Hold
}

func (v *servant) say(answer any, err error) {
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Println(answer)
}

func (v *servant) order(verb, name string) {
	ctx := context.Background()
	switch verb {
	case "lock":
		v.take(name, func() (*holdfast.Hold, error) { return v.s.Mutex(name).Acquire(ctx) })
	case "read":
		v.take(name, func() (*holdfast.Hold, error) { return v.s.RWMutex(name).Reader().Acquire(ctx) })
	case "flock": // a bare one, of a file with that path
		fd, err := syscall.Open(name, syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0o666)
		if err == nil {
			err = syscall.Flock(fd, syscall.LOCK_EX)
		}
		v.say("locked", err)
	case "permit":
		v.take(name, func() (*holdfast.Hold, error) { return v.s.Semaphore(name, 2).Acquire(ctx, 2) })
	case "lead":
		v.take(name, func() (*holdfast.Hold, error) {
			l, err := v.s.Election(name).Campaign(ctx, []byte("servant"))
			if err != nil {
				return nil, err
			}
			return l.Hold, nil
		})
	case "await": // a wait that is answered twice: when it begins, and when it ends
		go v.take(name, func() (*holdfast.Hold, error) {
			return v.s.Mutex(name, holdfast.OnWait(func(int) { fmt.Println("waits") })).Acquire(ctx)
		})
	case "campaign": // as await
		go v.take(name, func() (*holdfast.Hold, error) {
			l, err := v.s.Election(name, holdfast.OnWait(func(int) { fmt.Println("waits") })).Campaign(ctx, nil)
			if err != nil {
				return nil, err
			}
			return l.Hold, nil
		})
	case "release":
		v.mu.Lock()
		h := v.holds[name]
		v.mu.Unlock()
		v.say("released", h.Release())
	case "put":
		rev, err := v.s.KV().Put(ctx, name, []byte("servant"))
		v.say(rev, err)
	case "count":
		n, err := v.s.Counter(name).Add(ctx, 1)
		v.say(n, err)
	case "countdown":
		n, err := v.s.Latch(name, 1).CountDown(ctx, 1)
		v.say(n, err)
	case "key": // one that ends with the process
		ses, err := v.s.Session(ctx)
		if err == nil {
			_, err = v.s.KV().Put(ctx, name, []byte("mine"), holdfast.Under(ses))
		}
		v.say("put", err)
	case "storm": // counts and puts until it is killed, telling each count
		for {
			n, err := v.s.Counter(name).Add(ctx, 1)
			v.say(n, err)
			_, err = v.s.KV().Put(ctx, name, make([]byte, 3000))
			if err != nil {
				v.say(0, err)
			}
		}
	}
}

func (v *servant) take(name string, take func() (*holdfast.Hold, error)) {
	h, err := take()
	if err != nil {
		v.say(nil, err)
		return
	}
	v.mu.Lock()
	v.holds[name] = h
	v.mu.Unlock()
	v.say(uint64(h.Token()), nil)
}

// space opens dir for the time of the test.
func space(t testing.TB, dir string, opts ...holdfast.Option) *holdfast.Space {
	t.Helper()
	s, err := filehold.Open(dir, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// deadline is a context for what has to happen soon.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// eventually looks until it sees what it wants.
func eventually(t testing.TB, what string, look func() bool) {
	t.Helper()
	ctx := deadline(t)
	for !look() {
		select {
		case <-ctx.Done():
			t.Fatal(what)
		case <-time.After(time.Millisecond):
		}
	}
}

// noLeaks fails the test if goroutines of this package are left at its end.
func noLeaks(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		var left string
		for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(time.Millisecond) {
			if left = goroutines(); left == "" {
				return
			}
		}
		t.Errorf("goroutines are left:\n%s", left)
	})
}

// goroutines are those that run code of this package, but for the test's own.
func goroutines() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var left []string
	for _, g := range strings.Split(string(buf), "\n\n") {
		if strings.Contains(g, "holdfast/filehold.") && !strings.Contains(g, "filehold_test.") {
			left = append(left, g)
		}
	}
	return strings.Join(left, "\n\n")
}

// openDriver is a driver with seams replaced.
func openDriver(t testing.TB, dir string, change func(*filehold.Seams)) *holdfast.Space {
	t.Helper()
	d, err := filehold.NewWith(dir, change)
	if err != nil {
		t.Fatal(err)
	}
	s, err := holdfast.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
