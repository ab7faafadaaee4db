package child

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// running is a command on its way.
type running struct {
	*Command
	h      Hold
	cmd    *exec.Cmd
	warden *warden
	exited <-chan *os.ProcessState
	pace   pace
	asked  int      // how often SIGINT or SIGTERM was passed on
	tty    *os.File // the terminal, of which the command has the foreground; nil: it has none
	stops  <-chan os.Signal
	ending bool // the hold was lost, or was about to be
	alone  bool // it was told that there is no warden
	deaf   bool // it was told that the command cannot be signalled
	// stopped: Stop was heeded.
	stopped bool
	mark    string // of all that the command starts
	kin     family // what has to end with the command, as far as it is known by now
	fate    string // of what left the group, as the warden is told: ending or spare; empty: it is not settled
}

func (c *Command) run(h Hold) (Status, error) {
	w, err := startWarden(c.Notes)
	if err != nil {
		return Status{}, fmt.Errorf("%w: %w", ErrNoWarden, err)
	}
	stops, forget := stops()
	defer forget()
	r := &running{Command: c, h: h, warden: w, stops: stops, mark: rand.Text()}
	left, bounded := r.left() // before the command begins: the grace is a part of the whole
	r.pace = newPace(c.Grace, left, bounded)
	r.introduce()
	r.tellDeadline(left, bounded) // before, too: this process may be stopped at any moment
	if err := r.start(); err != nil {
		r.ignoreTerminal()
		r.takeTerminalBack() // which a program that could not be executed got before
		w.end()
		if err == errOver {
			return Status{Lost: r.lost(), NotStarted: true, Stopped: r.stopped}, nil
		}
		return Status{}, err
	}
	w.follow()
	state := r.follow()
	r.endRest()
	r.takeTerminalBack()
	r.ending = r.warden.end() || r.ending
	return Status{Code: codeOf(state), Lost: r.lost(), Stopped: r.stopped}, nil
}

// start runs the command on a thread of its own that lives as long as it does:
// the kernel kills the command with that thread.
func (r *running) start() error {
	if hasForeground(r.Stdin, r.Stdout) {
		r.tty = r.Stdin
	}
	r.cmd = &exec.Cmd{Path: r.Path, Args: r.Args, Env: marked(r.Env, r.mark), Dir: r.Dir, Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Foreground: r.tty != nil, Ctty: int(r.Stdin.Fd())}
	exited, started := make(chan *os.ProcessState, 1), make(chan error)
	go func() {
		runtime.LockOSThread()
		err := r.begin()
		if err == nil { // at once: if this program is killed before, what the command starts goes on
			r.kin.group = r.cmd.Process.Pid
			r.warden.tell(order{word: "group", process: r.kin.group})
		}
		started <- err
		if err == nil {
			_ = r.cmd.Wait() // the state says it all
			exited <- r.cmd.ProcessState
		}
	}()
	r.exited = exited
	if err := <-started; err != nil {
		return err
	}
	r.ignoreTerminal()
	return nil
}

// errOver: the command was to end before it had begun.
const errOver = driver.Kind("the command is to end already")

// begin starts the command, unless it is to end already: a short one would be done before it could be ended.
func (r *running) begin() error {
	left, bounded := r.left()
	r.ending = r.h.Err() != nil || bounded && left <= 0
	select {
	case <-r.Stop:
		r.stopped = true
	default:
	}
	if r.ending || r.stopped {
		return errOver
	}
	return r.cmd.Start()
}

// follow watches command, hold, clock and signals until the command has ended.
func (r *running) follow() *os.ProcessState {
	r.resume() // of a stop before that nobody was told
	timer := time.NewTimer(0)
	defer timer.Stop()
	over, stop := r.h.Done(), r.Stop
	for {
		select {
		case state := <-r.exited:
			return state
		case sig := <-r.Signals:
			r.passOn(sig)
		case sig := <-r.stops:
			r.resume()
			if sig == syscall.SIGTSTP {
				r.Note("what holds is not suspended")
			}
		case <-over:
			over = nil
		case <-stop:
			stop, r.stopped = nil, true
			r.stop()
		case <-timer.C:
		}
		timer.Reset(r.look())
	}
}

// look does what the hold's state demands, tells the warden, and says when to
// look again.
func (r *running) look() time.Duration {
	r.watchAgain()
	left, bounded := r.left()
	now := state{over: r.h.Err() != nil, bounded: bounded, left: left}
	r.tellDeadline(left, bounded)
	r.ending = r.ending || r.pace.due(now)
	do, again := r.pace.look(driver.Now(), now)
	switch do {
	case terminate:
		r.signal(syscall.SIGTERM)
		r.Note("the hold is lost or about to be; the command is told to end")
	case kill:
		r.signal(syscall.SIGKILL)
	}
	return again
}

// watchAgain starts another warden if somebody has ended the one that there was.
func (r *running) watchAgain() {
	if r.warden == nil || !r.warden.fell() {
		return
	}
	w, err := startWarden(r.Notes)
	if err != nil {
		if !r.alone {
			r.Note("the process that watches over the command was ended, and no other can be started: if this program is killed, the command goes on: " + err.Error())
		}
		r.alone = true
		return
	}
	_ = r.warden.stdin.Close()
	r.warden = w
	w.follow()
	r.introduce()
	w.tell(order{word: "group", process: r.cmd.Process.Pid})
	if r.fate != "" {
		w.tell(order{word: r.fate})
	}
	r.Note("the process that watches over the command was ended; another one does now")
}

// introduce tells a warden what it needs to know before there is a command.
func (r *running) introduce() {
	r.warden.tell(order{word: "mark", mark: r.mark})
	r.warden.tell(order{word: "holder", process: os.Getpid()})
}

func (r *running) tellDeadline(left time.Duration, bounded bool) {
	if bounded {
		r.warden.tell(order{word: "until", left: left - r.pace.margin/2})
	}
}

// left is the time to the hold's deadline.
func (r *running) left() (time.Duration, bool) {
	d, ok := r.h.Deadline()
	if !ok {
		return 0, false
	}
	return driver.Until(d), true
}

// lost is why the hold did not last as long as the command.
func (r *running) lost() error {
	if err := r.h.Err(); err != nil {
		return err
	}
	if r.ending {
		return errNotRenewed
	}
	return nil
}

const errNotRenewed = driver.Kind("its time was over, by --max-hold or because it could not be renewed; the command was over before others could hold it")

// passOn gives a signal to the command.
func (r *running) passOn(sig os.Signal) {
	s := sig.(syscall.Signal)
	if s == syscall.SIGINT || s == syscall.SIGTERM {
		r.asked++
	}
	switch {
	case r.asked == 2:
		r.pace.hurry(driver.Now())
	case r.asked > 2:
		s = syscall.SIGKILL
	}
	r.signal(s)
}

// stop has the command end. It is told once: for some programs a second SIGTERM means at once.
func (r *running) stop() {
	told := r.pace.told
	r.pace.hurry(driver.Now())
	if !told {
		r.signal(syscall.SIGTERM)
	}
}

// signal signals the whole group, and once the command is to end also what has left it. What is to end hears it
// also if it was stopped.
func (r *running) signal(s syscall.Signal) {
	if !r.pace.killAt.IsZero() {
		r.settle()
	}
	r.heard(r.kin.signal(s))
	if s == syscall.SIGINT || s == syscall.SIGTERM {
		_ = r.kin.signal(syscall.SIGCONT)
	}
}

// settle decides, once, what becomes of what has left the group: it ends with a command that is to end, and goes on if
// the command had ended by itself before. The warden is told first: it may have to do it.
func (r *running) settle() {
	if r.fate != "" {
		return
	}
	r.fate = "spare"
	if r.kin.led() {
		r.fate, r.kin.mark = "ending", r.mark
	}
	r.warden.tell(order{word: r.fate})
}

// heard tells once that a signal was not allowed: what runs as another user, as by sudo, can only be
// ended by hand, whatever becomes of the hold.
func (r *running) heard(err error) {
	if errors.Is(err, syscall.EPERM) && !r.deaf {
		r.deaf = true
		r.Note("the command runs as another user, and cannot be told to end: end it by hand")
	}
}

// resume continues a command that the terminal has stopped: one that sleeps while it holds
// would keep everybody waiting. One that wants the terminal gets it from this program, and
// is ended if another has it: continued it would want it again at once.
func (r *running) resume() {
	switch stoppedBy(r.cmd.Process.Pid) {
	case syscall.SIGTSTP:
		r.signal(syscall.SIGCONT)
		r.Note("what holds is not suspended; the command goes on")
	case syscall.SIGTTIN, syscall.SIGTTOU:
		if r.giveTerminal() {
			r.signal(syscall.SIGCONT)
			return
		}
		if r.pace.told {
			return // it stays stopped until the grace is over: continued it would want the terminal again
		}
		r.pace.hurry(driver.Now())
		r.signal(syscall.SIGTERM)
		r.Note("the command wants the terminal, which is another's; it is told to end: run it in the foreground")
	} // else nobody's, or SIGSTOP, which somebody meant
}

// endRest ends what the command left: it must not outlive the hold. What has left its group goes on if the
// command has ended by itself, as that of a daemon does.
func (r *running) endRest() {
	r.settle()
	if !r.kin.alive() {
		return
	}
	r.signal(syscall.SIGTERM)
	r.Note("the command has ended and left processes behind; they are ended too")
	r.pace.hurry(driver.Now())
	for pause := breath; r.kin.alive(); pause = slower(pause) {
		select {
		case sig := <-r.Signals:
			r.passOn(sig)
		case <-time.After(min(pause, r.look())):
		}
	}
}

// codeOf is a shell's idea of how a process ended.
func codeOf(s *os.ProcessState) int {
	ws, ok := s.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}
