package child

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// warden is the other process, as the first one sees it.
type warden struct {
	cmd   *exec.Cmd
	stdin *os.File
	gone  chan struct{} // closed: it has ended
	once  sync.Once
}

// startWarden starts the warden with a copy of every file and connection that
// this program has open.
func startWarden(notes *os.File) (*warden, error) {
	kept := openFiles()
	defer closeAll(kept)
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cmd := exec.Command("/proc/self/exe", WardenArg)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(unmarked(os.Environ()), "GOMAXPROCS=1")
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = in, notes, kept
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = out.Close()
		return nil, err
	}
	return &warden{cmd: cmd, stdin: out, gone: make(chan struct{})}, nil
}

// follow waits for the warden's end from now on. It begins when the command has: before, the
// wait could hold up what the warden has to be told first.
func (w *warden) follow() {
	w.once.Do(func() {
		go func() {
			defer close(w.gone)
			_ = w.cmd.Wait() // the state says it all
		}()
	})
}

// fell reports that the warden was ended by somebody else, and watches no more.
func (w *warden) fell() bool {
	select {
	case <-w.gone:
		code := w.cmd.ProcessState.ExitCode()
		return code != 0 && code != acted
	default:
		return false
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// tell gives an order. A warden that has gone needs none.
func (w *warden) tell(o order) { _, _ = io.WriteString(w.stdin, o.String()) }

// acted is the exit code of a warden that had to kill the command.
const acted = 3

// end ends the warden and returns when it has closed everything: until then the
// kernel frees nothing. It reports whether the warden killed the command.
func (w *warden) end() (killed bool) {
	w.tell(order{word: "end"})
	_ = w.stdin.Close()
	w.follow()
	<-w.gone // it may have been killed; that is not the command's fault
	return w.cmd.ProcessState.ExitCode() == acted
}

// Warden is the main function of the second process; it returns the exit code.
// It is told what to watch on in, and when in ends without a farewell it kills
// the command with all that it has started.
func Warden(in io.Reader, notes io.Writer) int {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	orders := make(chan order)
	go listen(in, orders)
	w := watch{clock: time.NewTimer(glance), pause: breath}
	defer w.clock.Stop()
	for {
		select {
		case o, ok := <-orders:
			switch {
			case !ok:
				return avenge(w.family, notes, "holdfast was killed")
			case o.word == "end":
				return 0
			}
			w.heed(o)
		case <-w.clock.C:
			if w.late() {
				return avenge(w.family, notes, "the hold was not renewed in time")
			}
		}
	}
}

// watch is what the warden knows.
type watch struct {
	family
	holder   int
	ending   bool      // the command was told to end before it had ended by itself
	deadline time.Time // zero: none
	clock    *time.Timer
	pause    time.Duration // to the next look for a command after the deadline
}

func (w *watch) heed(o order) {
	switch o.word {
	case "mark":
		w.mark = o.mark
	case "holder":
		w.holder = o.process
	case "ending":
		w.ending = true
	case "spare":
		w.mark = ""
	case "group":
		w.group = o.process
		w.clock.Reset(0) // the deadline may be over
	case "until":
		w.deadline = driver.Now().Add(o.left)
		w.clock.Reset(min(max(o.left, time.Millisecond), glance))
	}
}

// late reports that the command has outlived the deadline. Otherwise the clock is set for the next look: if there
// is no command that is ever later, since a holder that is stopped may stay so for days.
func (w *watch) late() bool {
	if w.deadline.IsZero() {
		return false
	}
	left := driver.Until(w.deadline)
	if left > 0 {
		w.clock.Reset(min(left, glance))
		return false
	}
	if w.group == 0 {
		w.group = commandOf(w.holder) // which may have been stopped before it could tell
	}
	w.clock.Reset(w.pause)
	w.pause = slower(w.pause)
	if !w.ending && !w.led() {
		w.mark = "" // it has ended by itself while its holder was stopped: what left the group goes on
	}
	return w.group != 0
}

// listen reads orders until the first process has ended.
func listen(in io.Reader, orders chan<- order) {
	defer close(orders)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		o, err := parseOrder(lines.Text())
		if err != nil {
			return // nobody else writes here: as good as an end
		}
		orders <- o
	}
}

// avenge kills the command with all that it has started, and returns when it is gone.
func avenge(f family, notes io.Writer, why string) int {
	if f.group == 0 {
		return 0 // no command was started
	}
	if !f.alive() {
		return 0
	}
	await(func() bool {
		_ = f.signal(syscall.SIGKILL)
		return !f.alive()
	})
	tell(notes, fmt.Sprintf("holdfast: %s; its command is killed\n", why))
	return acted
}

// patience is how long the warden waits for a reader: until it ends, what was held is.
const patience = time.Second

// tell writes to a reader that may be one that does not read, as behind ^S or a pager.
func tell(notes io.Writer, text string) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		_, _ = io.WriteString(notes, text)
	}()
	select {
	case <-told:
	case <-time.After(patience):
	}
}
