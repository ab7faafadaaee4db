package filehold

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdfast-io/holdfast/driver"
)

func open(dir string, perm fs.FileMode) (driver.Driver, error) {
	return openWith(dir, perm, production)
}

func openWith(dir string, perm fs.FileMode, s seams) (driver.Driver, error) {
	d, err := newClient(dir, perm, s)
	if err == nil {
		return d, nil
	}
	if _, ok := errors.AsType[*driver.Error](err); ok {
		return nil, err
	}
	kind := kindOf(err)
	if kind == fs.ErrPermission {
		err = fmt.Errorf("%w; to share a directory with others, the user that makes it opens it with ?mode=0660 (a group) or ?mode=0666", err)
	}
	return nil, &driver.Error{Op: "open", Name: dir, Kind: kind, Outcome: driver.NotDone, Err: err}
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
