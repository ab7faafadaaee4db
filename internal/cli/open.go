package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// open opens the Space that the settings name.
func (a *app) open(ctx context.Context, opts ...holdfast.Option) (*holdfast.Space, error) {
	where, err := a.backend()
	if err != nil {
		return nil, err
	}
	s, err := holdfast.Open(ctx, where, opts...)
	if err != nil {
		return nil, unopened(err)
	}
	return s, nil
}

// openDriver opens the backend itself, for what the library does not tell.
func (a *app) openDriver(ctx context.Context) (driver.Driver, error) {
	where, err := a.backend()
	if err != nil {
		return nil, err
	}
	d, err := driver.Open(ctx, where)
	if err != nil {
		return nil, unopened(err)
	}
	return d, nil
}

// openSoon is openWithin until a signal.
func (a *app) openSoon(sigs *signals) (*holdfast.Space, error) {
	ctx, done := sigs.during(context.Background())
	s, err := a.openWithin(ctx)
	asked := done()
	switch {
	case asked == nil:
		return s, err
	case err == nil: // it came with the answer
		_ = s.Close()
	}
	return nil, asked
}

// openWithin opens the Space and has an answer of it, until the timeout: what follows, as a wait
// for a turn or an event, must not be one for a server that is not there.
func (a *app) openWithin(ctx context.Context) (*holdfast.Space, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, errTimeout)
	defer cancel()
	s, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Ping(ctx); err != nil {
		return nil, errors.Join(unanswered(err), s.Close())
	}
	return s, nil
}

// unanswered tells a backend that has not answered in time from a wait that has ended.
func unanswered(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &failure{code: exitTimeout, err: err, hint: cmp.Or(trustHint(err.Error()), "is the backend up? name another with --url, or give it more time with --timeout")}
	}
	return err
}

// unopened tells a wrong URL from a backend that cannot be reached, or not in time.
func unopened(err error) error {
	switch {
	case errors.Is(err, fs.ErrInvalid):
		return &failure{code: exitUsage, err: err, hint: "set the backend with --url or HOLDFAST_URL, such as file:///var/lock/app"}
	case errors.Is(err, context.DeadlineExceeded):
		return unanswered(err)
	}
	return &failure{code: exitFailed, err: err, hint: cmp.Or(trustHint(err.Error()), "is the backend there? --url or HOLDFAST_URL names another")}
}

// backend is the URL of the settings, or of the account's own files.
func (a *app) backend() (string, error) {
	if a.url != "" {
		return a.url, nil
	}
	dir, err := stateDir()
	if err != nil {
		return "", &failure{code: exitUsage, err: err, hint: "name a backend with --url, such as --url file:///var/lock/app"}
	}
	a.url = (&url.URL{Scheme: "file", Path: dir}).String()
	return a.url, nil
}

// stateDir is where an account's own names live. It is on disk, so that counters
// outlive a log-out and tokens a restart.
func stateDir() (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no backend is named, and there is no home directory for files: %w", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", fmt.Errorf("no backend is named, and there is no place for files: %w", err)
	}
	return filepath.Join(base, "holdfast"), nil
}
