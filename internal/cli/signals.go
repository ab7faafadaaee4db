package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// catchable is what is passed on to a command.
var catchable = append([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, forCommands...)

// signals are those that a user sends to the program.
type signals struct{ c chan os.Signal }

// catch takes the signals over, except those that were ignored from the start,
// as by nohup.
func catch() *signals {
	s := &signals{make(chan os.Signal, 16)}
	for _, sig := range catchable {
		if !signal.Ignored(sig) {
			signal.Notify(s.c, sig)
		}
	}
	return s
}

func (s *signals) stop() { signal.Stop(s.c) }

// during returns a context that ends with the first signal that means an end. The function
// returned ends it, and returns that signal if it came, also after everything was done: it is
// told nowhere else.
func (s *signals) during(parent context.Context) (context.Context, func() error) {
	ctx, cancel := context.WithCancelCause(parent)
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case <-over:
				return
			case sig := <-s.c:
				if !slices.Contains(forCommands, sig) {
					cancel(signalled{sig.(syscall.Signal)})
				}
			}
		}
	}()
	return ctx, func() error {
		close(over)
		<-gone
		cancel(nil)
		if s, ok := errors.AsType[signalled](context.Cause(ctx)); ok {
			return s
		}
		return nil
	}
}

// untilSignal runs f with a context that ends with a signal; if one came, the
// error says so, whatever f made of it.
func untilSignal(f func(ctx context.Context) error) error {
	sigs := catch()
	defer sigs.stop()
	ctx, done := sigs.during(context.Background())
	err := f(ctx)
	if asked := done(); asked != nil && err != nil {
		return asked
	}
	return err
}
