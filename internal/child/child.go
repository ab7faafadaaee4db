package child

import (
	"os"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// Hold is what a command runs under: a holdfast.Hold or a holdfast.Session.
type Hold interface {
	// Done is closed when it is over.
	Done() <-chan struct{}
	// Err is nil exactly as long as it lasts.
	Err() error
	// Deadline is when it ends unless it is renewed, a time of driver.Now;
	// false: it has none.
	Deadline() (time.Time, bool)
}

// Command is what to run.
type Command struct {
	// Path is the program, found; Args are its arguments, its name first.
	Path string
	Args []string
	// Env is the whole environment.
	Env []string
	// Dir is where it runs; empty: where this program does.
	Dir string
	// Stdin, Stdout and Stderr are handed on as they are. If both Stdin and
	// Stdout are a terminal and this program has its foreground, the command
	// gets it.
	Stdin, Stdout, Stderr *os.File
	// Notes is where the second process tells that it had to kill the command.
	Notes *os.File
	// Grace is how long the command has between SIGTERM and SIGKILL, at most a
	// quarter of the time to the hold's deadline.
	Grace time.Duration
	// Signals are passed on. After the second SIGINT or SIGTERM the command has
	// Grace to end, after the third it is killed.
	Signals <-chan os.Signal
	// Stop, when it is closed, has the command end: it gets one SIGTERM, and has Grace. One
	// that has not begun yet does not.
	Stop <-chan struct{}
	// Note is told what happens beside the command's own output, after it was done. It must
	// not wait: nothing watches over the command meanwhile but the warden.
	Note func(text string)
}

// WardenArg is the only argument of the program when it is to be a warden; its
// main function calls [Warden] then.
const WardenArg = "_warden"

// Status is how a command ended.
type Status struct {
	// Code is its exit code, or 128 and the signal's number.
	Code int
	// Lost is why the hold ended before the command did; nil: it did not.
	Lost error
	// NotStarted: the hold was lost, or Stop closed, before the command could begin, and it did not.
	NotStarted bool
	// Stopped: Stop was heeded before the command was known to have ended.
	Stopped bool
}

// ErrNoWarden: the second process could not be started; it is no fault of the command.
const ErrNoWarden = driver.Kind("cannot start the process that watches over the command")

// Run runs the command while h lasts. It returns when the command and all that
// it left in its process group are gone, of a command that was ended also what
// has left the group; err means that it never ran.
func (c *Command) Run(h Hold) (Status, error) { return c.run(h) }
