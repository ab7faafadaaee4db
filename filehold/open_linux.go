package filehold

import (
	"errors"
	"io/fs"

	"github.com/holdfast-io/holdfast/driver"
)

func open(dir string) (driver.Driver, error) { return openWith(dir, production) }

func openWith(dir string, s seams) (driver.Driver, error) {
	d, err := newClient(dir, s)
	if err == nil {
		return d, nil
	}
	if _, ok := errors.AsType[*driver.Error](err); ok {
		return nil, err
	}
	return nil, &driver.Error{Op: "open", Name: dir, Kind: kindOf(err), Outcome: driver.NotDone, Err: err}
}

// kindOf sorts the errors of the system.
func kindOf(err error) error {
	for _, kind := range []error{fs.ErrNotExist, fs.ErrPermission, errors.ErrUnsupported} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return driver.ErrUnavailable
}
