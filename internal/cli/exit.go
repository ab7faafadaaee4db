package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
)

// The exit codes; docs/cli.md promises them. A command's own code is passed on.
const (
	exitNo        = 1   // the answer is no: no such key, a compare that failed, a promise not kept
	exitUsage     = 64  // the command line makes no sense
	exitHeld      = 75  // somebody else holds it
	exitLost      = 76  // the hold was lost while the command ran
	exitTimeout   = 124 // the wait, or the backend's answer, took too long
	exitFailed    = 125 // holdfast itself, or its backend, failed
	exitCannotRun = 126 // the command cannot be run
	exitNotFound  = 127 // there is no such command
	exitBySignal  = 128 // and the signal's number
)

// failure is an error with an exit code and what to do next.
type failure struct {
	code int
	err  error // nil: nothing to say
	hint string
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// signalled is the cause when a signal ended a wait.
type signalled struct{ syscall.Signal }

func (s signalled) Error() string { return "ended by a signal: " + s.Signal.String() }

// errTimeout is the cause when --timeout has passed.
var errTimeout error = timeoutError{}

type timeoutError struct{}

func (timeoutError) Error() string { return "the backend has not answered in time" }

func (timeoutError) Is(kind error) bool { return kind == context.DeadlineExceeded }

// usage is a mistake in the command line; its hint is that of err, if it has one.
func usage(cmd *cobra.Command, err error) error {
	hint := "see " + cmd.CommandPath() + " --help"
	if f, ok := errors.AsType[*failure](err); ok && f.hint != "" {
		hint = f.hint
	}
	return &failure{code: exitUsage, err: err, hint: hint}
}

// usagef is a mistake that only the command itself can see.
func usagef(hint, format string, args ...any) error {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...), hint: hint}
}

// report tells an error and gives the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return 0
	}
	f := failureOf(err)
	if f.err != nil {
		a.print().failure(f)
	}
	return f.code
}

// failureOf finds code and hint of an error that has none.
func failureOf(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if s, ok := errors.AsType[signalled](err); ok {
		return &failure{code: exitBySignal + int(s.Signal), err: err}
	}
	for _, k := range kinds {
		if errors.Is(err, k.is) {
			return &failure{code: k.code, err: err, hint: k.advice(err)}
		}
	}
	return &failure{code: exitFailed, err: err}
}

// kind is one of the library's errors, with the exit code and what to do next.
type kind struct {
	is   error
	code int
	hint string
}

// advice is what to do about an error of this kind.
func (k *kind) advice(err error) string {
	if k.is == holdfast.ErrUnavailable {
		return cmp.Or(trustHint(err.Error()), k.hint)
	}
	return k.hint
}

// kinds map the library's errors to exit codes; the first that fits counts.
var kinds = []kind{
	{holdfast.ErrHeld, exitHeld, "wait for it with --wait 30s, or see its holder with holdfast show NAME"},
	{holdfast.ErrLost, exitLost, "run it again; what the lost turn wrote is told apart by its token"},
	{errors.ErrUnsupported, exitFailed, "choose another backend with --url; docs/backends.md has them side by side"},
	{fs.ErrInvalid, exitUsage, "correct the arguments; nothing was changed"},
	{holdfast.ErrConflict, exitNo, "look at it anew (holdfast show, counter get, kv get) and decide"},
	{fs.ErrNotExist, exitNo, ""},
	{holdfast.ErrExhausted, exitFailed, "make room as the error says: delete names or keys that nobody needs, free space on the server's disk, or raise its bound"},
	{context.DeadlineExceeded, exitTimeout, "give it more time with --wait or --timeout, or see its holder with holdfast show NAME"},
	{holdfast.ErrUnavailable, exitFailed, "is the backend up? try again, or name another with --url"},
	{fs.ErrPermission, exitFailed, "use an account that may, or another backend with --url"},
	{context.Canceled, exitBySignal + int(syscall.SIGINT), ""},
}
