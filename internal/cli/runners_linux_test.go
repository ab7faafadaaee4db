package cli_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/internal/cli"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

var (
	runnerMoments = flag.Int("cli.moments", 2, "at how many random moments TestRunners_RandomMoments strikes, for each backend and signal")
	runnerSteps   = flag.Int("cli.every", 20, "TestRunners_EachStep strikes at every so many steps; 1: at each")
)

const (
	runnerTTL     = 2 * time.Second
	runnersAtOnce = 2
	stepVariable  = "HOLDFAST_TEST_STEP"
)

// holdfast-stepped is the program with a signal that it sends itself: at its nth call of the backend,
// before it is made or after it is done. The variable says: n, before or after, the signal's number and a
// directory, where the file calls has a byte for each call, and the file cut says that it was there.
func init() {
	played["holdfast-stepped"] = func() {
		s := &stepped{}
		if _, err := fmt.Sscanf(os.Getenv(stepVariable), "%d %s %d %s", &s.at, &s.side, &s.sig, &s.dir); err != nil {
			panic(err)
		}
		for _, scheme := range []string{"file", "holdfast", "postgres"} {
			driver.Register("stepped+"+scheme, s.open)
		}
		os.Exit(cli.Main(os.Args[1:]))
	}
}

// stepped is a backend that counts what it is called for.
type stepped struct {
	driver.Driver
	calls atomic.Int64
	at    int64
	side  string
	sig   syscall.Signal
	dir   string
}

func (s *stepped) open(ctx context.Context, u *url.URL) (d driver.Driver, err error) {
	inner := *u
	inner.Scheme = strings.TrimPrefix(u.Scheme, "stepped+")
	s.Driver, err = driver.Open(ctx, inner.String())
	return s, err
}

// step is one call; the signal comes on one of its sides.
func (s *stepped) step(call func()) {
	n := s.calls.Add(1)
	if f, err := os.OpenFile(filepath.Join(s.dir, "calls"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
		_, _ = f.WriteString(".")
		_ = f.Close()
	}
	if n == s.at && s.side == "before" {
		s.strike()
	}
	call()
	if n == s.at && s.side == "after" {
		s.strike()
	}
}

func (s *stepped) strike() {
	_ = os.WriteFile(filepath.Join(s.dir, "cut"), nil, 0o600)
	_ = syscall.Kill(os.Getpid(), s.sig)
}

func (s *stepped) Ping(ctx context.Context) (err error) {
	s.step(func() { err = s.Driver.Ping(ctx) })
	return err
}

func (s *stepped) Txn(ctx context.Context, r *driver.TxnRequest) (rep *driver.TxnReply, err error) {
	s.step(func() { rep, err = s.Driver.Txn(ctx, r) })
	return rep, err
}

func (s *stepped) Inspect(ctx context.Context, r *driver.InspectRequest) (rep driver.InspectReply, err error) {
	s.step(func() { rep, err = s.Driver.Inspect(ctx, r) })
	return rep, err
}

func (s *stepped) Acquire(ctx context.Context, r *driver.Request) (g driver.Grant, err error) {
	s.step(func() { g, err = s.Driver.Acquire(ctx, r) })
	if err == nil {
		g.Handle = steppedHandle{g.Handle, s}
	}
	return g, err
}

func (s *stepped) Watch(ctx context.Context, r *driver.WatchRequest) iter.Seq2[driver.Event, error] {
	s.step(func() {})
	return s.Driver.Watch(ctx, r)
}

func (s *stepped) Close(ctx context.Context) (err error) {
	s.step(func() { err = s.Driver.Close(ctx) })
	return err
}

type steppedHandle struct {
	driver.Handle
	s *stepped
}

func (h steppedHandle) Release(ctx context.Context) (err error) {
	h.s.step(func() { err = h.Handle.Release(ctx) })
	return err
}

// arena is a backend on which runners are struck, each with a pipeline of its own.
type arena struct {
	t      *testing.T
	url    string
	sig    syscall.Signal
	space  *holdfast.Space
	p      *run.Pipelines
	rounds atomic.Int64
	asked  atomic.Int64
	mu     sync.Mutex
	most   time.Duration // that something was held after the runner was struck, beyond the end of the run
}

// arenas are the backends with what a runner can suffer there.
func arenas(t *testing.T, each func(a *arena)) {
	for _, tt := range []struct {
		backend string
		sig     syscall.Signal
	}{
		{"file", syscall.SIGKILL}, {"file", syscall.SIGSTOP}, {"PostgreSQL", syscall.SIGKILL}, {"PostgreSQL", syscall.SIGSTOP}, {"node", syscall.SIGKILL}, {"node", syscall.SIGSTOP},
	} {
		t.Run(tt.backend+" "+tt.sig.String(), func(t *testing.T) {
			a := &arena{t: t, sig: tt.sig, url: backends.URL(t, tt.backend)}
			a.space = backends.Client(t, a.url)
			var err error
			if a.p, err = run.New(run.Config{Space: a.space}); err != nil {
				t.Fatal(err)
			}
			each(a)
		})
	}
}

// round is a run with two runners, the first of which is struck.
type round struct {
	*arena
	what      string
	ref       run.Ref
	dir, file string
	firstEnds chan error
	heldUp    func() time.Duration // ends the look at the machine
	early     bool                 // a stopped one goes on before the run has ended, perhaps
	asks      bool
}

// tooLate is how long a machine may be held up without a process of its being late for what the clock
// decides: the warden of a stopped runner ends its command the 32nd part of a TTL before the hold is over.
const tooLate = runnerTTL / 40

// lookAtMachine tells, when it is called off, how long this program was held up at most: the machine's
// other processes may have been, too.
func lookAtMachine() (heldUp func() time.Duration) {
	over, most := make(chan struct{}), make(chan time.Duration)
	go func() {
		const every = 5 * time.Millisecond
		longest, last := time.Duration(0), time.Now()
		for tick := time.NewTicker(every); ; {
			select {
			case <-tick.C:
				longest, last = max(longest, time.Since(last)-every), time.Now()
			case <-over:
				tick.Stop()
				most <- longest
				return
			}
		}
	}()
	return func() time.Duration { close(over); return <-most }
}

// begin starts the first runner, which submits the run.
func (a *arena) begin(what, step string) (*round, *exec.Cmd) {
	name := fmt.Sprint("release-", a.rounds.Add(1))
	dir := a.t.TempDir()
	k := &round{arena: a, what: name + ", " + what, ref: run.Ref{Pipeline: name, ID: "1"}, dir: dir, file: filepath.Join(dir, "p.yaml"), heldUp: lookAtMachine()}
	text := fmt.Sprintf(`pipeline: %[1]s
queue: {places: 1}
phases:
  - {name: build, run: [phase-log, %[2]q, "60"], retries: 3}
  - name: deploy
    when: {key: {key: freeze, exists: false}}
    holds: [lock: prod-%[1]s]
    run: [phase-log, %[2]q, "60"]
    until: {key: {key: broken, exists: false}}
    within: 1m
`, name, dir)
	if err := os.WriteFile(k.file, []byte(text), 0o600); err != nil {
		a.t.Error(err)
	}
	first := k.program("holdfast-stepped", "stepped+"+a.url, "--id", "1", k.file)
	first.Env = append(first.Env, fmt.Sprintf("%s=%s %d %s", stepVariable, step, a.sig, dir))
	ends, err := begin(first)
	if err != nil {
		a.t.Error(err)
	}
	k.firstEnds = ends
	return k, first
}

// program is a runner.
func (k *round) program(name, url string, args ...string) *exec.Cmd {
	cmd := program(k.t, k.dir, append([]string{"--url", url, "pipeline", "run", "--ttl", runnerTTL.String()}, args...)...)
	cmd.Path, cmd.Args[0] = cmd.Path[:len(cmd.Path)-len("holdfast")]+name, name
	said := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = said, said
	return cmd
}

// until looks until it is so; what never becomes so fails the test.
func (k *round) until(what string, is func() bool) {
	look, over := time.NewTicker(5*time.Millisecond), time.After(time.Minute)
	defer look.Stop()
	for !is() {
		select {
		case <-look.C:
		case <-over:
			k.t.Errorf("%s: it never came to this: %s; the log: %q", k.what, what, readLog(k.dir))
			return
		}
	}
}

// hasEnded reports that the first runner has ended.
func (k *round) hasEnded() bool {
	select {
	case err := <-k.firstEnds:
		k.firstEnds <- err
		return true
	default:
		return false
	}
}

// isCut reports that the first runner was struck at its step.
func (k *round) isCut() bool {
	_, err := os.Stat(filepath.Join(k.dir, "cut"))
	return err == nil
}

// report is where the run stands; false: there is none.
func (k *round) report() (run.Report, bool) {
	rep, err := k.p.Report(k.t.Context(), k.ref)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.t.Errorf("%s: %v", k.what, err)
	}
	return rep, err == nil
}

// second starts the second runner: it goes on with the run, or submits it if the first has not come so far.
func (k *round) second() (ends chan error, err error) {
	if _, there := k.report(); there {
		return k.resume()
	}
	submits, err := begin(k.program("holdfast", k.url, "--id", "1", k.file))
	if err != nil {
		return nil, err
	}
	ends = make(chan error, 1)
	go func() {
		err := <-submits
		if rep, there := k.report(); err != nil && there && !rep.State.Status.Ended() { // what the first had sent came later
			resumed, begun := k.resume()
			if err = begun; err == nil {
				err = <-resumed
			}
		}
		ends <- err
	}()
	return ends, nil
}

func (k *round) resume() (ends chan error, err error) {
	return begin(k.program("holdfast", k.url, "--resume", k.ref.String()))
}

// play has the run go on to its end, by the first runner, which is struck, and by the second, which is beside
// it since the first had the run.
func (k *round) play(first *exec.Cmd) {
	k.until("the first has the run, or is struck", func() bool {
		rep, there := k.report()
		return k.isCut() || k.hasEnded() || there && (rep.Runner != "" || rep.State.Status.Ended())
	})
	second, err := k.second()
	if err != nil {
		k.t.Error(err)
		return
	}
	wake := k.wake(first)
	k.answered()
	wake()
	k.ends(second, "second", wake)
	k.ends(k.firstEnds, "first", wake)
	k.judge()
}

// wake has a stopped runner go on: at a random moment, or at the latest when the answer is called.
func (k *round) wake(first *exec.Cmd) func() {
	if k.sig != syscall.SIGSTOP {
		return func() {}
	}
	goOn := func() {
		_ = os.WriteFile(filepath.Join(k.dir, "awake"), nil, 0o600)
		_ = syscall.Kill(first.Process.Pid, syscall.SIGCONT)
	}
	if k.early = k.keeps() || rand.IntN(2) == 0; k.early {
		over := make(chan struct{})
		go k.goOnSoon(rand.N(2*runnerTTL), goOn, over)
		stop := sync.OnceFunc(func() { close(over) })
		return func() { stop(); goOn() }
	}
	return goOn
}

// goOnSoon has a runner go on after a while. Where the others wait for it, again and again: it may be stopped later than that.
func (k *round) goOnSoon(after time.Duration, goOn func(), over chan struct{}) {
	for wait := time.After(after); ; wait = time.After(50 * time.Millisecond) {
		select {
		case <-wait:
			goOn()
		case <-over:
			return
		}
		if !k.keeps() {
			return
		}
	}
}

// keeps reports that what a process holds here it holds as long as it is there, stopped or not: the others wait.
func (a *arena) keeps() bool { return !strings.HasPrefix(a.url, "holdfast:") }

// answered waits for the end of the run, and answers what it asks.
func (k *round) answered() {
	k.until("the run has ended", func() bool {
		rep, there := k.report()
		if there && rep.State.Status == pipeline.Unknown && !k.asks {
			k.asks = true
			k.asked.Add(1)
			k.answer()
		}
		return there && rep.State.Status.Ended()
	})
}

// answer sees that the run says what is unknown, and says that it went well.
func (k *round) answer() {
	why := program(k.t, k.dir, "--url", k.url, "pipeline", "why", k.ref.String())
	out, _ := why.CombinedOutput()
	if code := why.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "holdfast pipeline approve "+k.ref.String()) {
		k.t.Errorf("%s: why exits with %d: %s", k.what, code, out)
	}
	if out, err := program(k.t, k.dir, "--url", k.url, "pipeline", "approve", k.ref.String()).CombinedOutput(); err != nil {
		k.t.Errorf("%s: approve: %v: %s", k.what, err, out)
	}
}

// ends expects a runner to end with the run; it is woken until then, for it may be stopped at its very end.
func (k *round) ends(c chan error, which string, wake func()) {
	again, over := time.NewTicker(50*time.Millisecond), time.After(time.Minute)
	defer again.Stop()
	for {
		select {
		case <-c:
			return
		case <-again.C:
			wake()
		case <-over:
			k.t.Errorf("%s: the %s runner does not end", k.what, which)
			return
		}
	}
}

// judge looks at the log, and at what is held.
func (k *round) judge() {
	counts, heldUp := map[string]int{}, k.heldUp()
	for _, line := range readLog(k.dir) {
		word, phase, _ := strings.Cut(line, " ")
		phase, _, _ = strings.Cut(phase, " ")
		switch counts[word+" "+phase]++; {
		case word == "start", word == "end":
		case k.sig == syscall.SIGSTOP && heldUp > tooLate && strings.HasSuffix(line, "another command lives"):
			k.t.Logf("%s: %s; the machine was held up for %s, which is outside the promise", k.what, line, heldUp)
		default:
			k.t.Errorf("%s: %s; held up for %s", k.what, line, heldUp)
		}
	}
	rep, _ := k.report()
	whole := counts["start deploy"] == 1 && counts["end deploy"] == 1 && counts["end build"] >= 1
	fails := k.sig == syscall.SIGSTOP && k.early // its command is ended while it is stopped, and it sees that
	switch s := rep.State.Status; {
	case counts["start deploy"] > 1, counts["start build"] > 4:
		k.t.Errorf("%s: %v", k.what, counts)
	case s == pipeline.Done && !k.asks && !whole, s != pipeline.Done && !(s == pipeline.Failed && fails):
		k.t.Errorf("%s: it is %s (%s) after %v; asked: %t", k.what, s, rep.State.Reason, counts, k.asks)
	}
	k.free()
}

// free expects nothing to be held once the TTL of the one that was struck is over: what is held ends within it.
func (k *round) free() {
	began := time.Now()
	k.until("nothing is held", func() bool {
		var held []driver.Claim
		for _, name := range []string{"prod-" + k.ref.Pipeline, "holdfast/pipelines/" + k.ref.String()} {
			res, err := k.space.Inspect(k.t.Context(), name)
			if err != nil {
				return false
			}
			held = append(held, res.Holders...)
		}
		for _, h := range held {
			if h.ExpiresIn > runnerTTL {
				k.t.Errorf("%s: %s is held for another %s", k.what, h.Name, h.ExpiresIn)
			}
		}
		return len(held) == 0
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.most = max(k.most, time.Since(began))
}

// proof tells what was seen, if nothing was wrong.
func (a *arena) proof(where string) {
	if scheme, _, _ := strings.Cut(a.url, ":"); !a.t.Failed() {
		a.t.Logf("proof: %s: %s %s: %d asked how a command ended; nothing started twice or beside another, held for %s beyond the end", scheme, a.sig, where, a.asked.Load(), a.most.Round(time.Millisecond))
	}
}

// A runner is killed or stopped at each of its calls of the backend, before it and after it, with a second runner
// beside it: nothing that may not is started twice, nothing runs beside another, an end that nobody saw is asked
// for, and in the end nothing is held.
func TestRunners_EachStep(t *testing.T) {
	arenas(t, func(a *arena) {
		k, first := a.begin("undisturbed", "0 before")
		k.play(first)
		calls, err := os.Stat(filepath.Join(k.dir, "calls"))
		if err != nil || calls.Size() < 20 {
			a.t.Fatalf("it makes calls: %v, %v", calls, err)
		}
		var steps []string
		for n := 1 + rand.IntN(*runnerSteps); n <= int(calls.Size()); n += *runnerSteps {
			steps = append(steps, fmt.Sprint(n, " before"), fmt.Sprint(n, " after"))
		}
		var missed atomic.Int64
		services.Struck(a.t, len(steps), runnersAtOnce, func(i int) bool {
			k, first := a.begin(a.sig.String()+" at call "+steps[i], steps[i])
			k.play(first)
			if !k.isCut() {
				missed.Add(1) // it needed fewer calls this time
			}
			return true
		})
		if len(steps)-int(missed.Load()) < 2 { // the first step is among the calls that every run makes; how many follow depends on what looks find
			a.t.Errorf("only %d of %d runners came to their step", len(steps)-int(missed.Load()), len(steps))
		}
		a.proof(fmt.Sprintf("at %d steps of %d calls, before and after each, %d of which it did not come to", len(steps), calls.Size(), missed.Load()))
	})
}

// The same at random moments between the start of the first runner and its end; those before the run is there and
// after its end do not count.
func TestRunners_RandomMoments(t *testing.T) {
	arenas(t, func(a *arena) {
		began := time.Now()
		k, first := a.begin("undisturbed", "0 before")
		k.play(first)
		takes := time.Since(began)
		more := services.Struck(a.t, *runnerMoments, runnersAtOnce, func(int) bool {
			moment := rand.N(takes)
			k, first := a.begin(fmt.Sprintf("%s after %s", a.sig, moment), "0 before")
			within := make(chan bool, 1)
			time.AfterFunc(moment, func() {
				rep, there := k.report()
				_ = first.Process.Signal(a.sig) // it may have ended
				_ = os.WriteFile(filepath.Join(k.dir, "cut"), nil, 0o600)
				within <- there && !rep.State.Status.Ended()
			})
			k.play(first)
			return <-within
		})
		a.proof(fmt.Sprintf("at %d random moments within a run, and at %d others", *runnerMoments, more))
	})
}
