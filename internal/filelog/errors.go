package filelog

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdfast-io/holdfast/driver"
)

// ErrBehind is the answer of [Log.CatchUp] when what this process has not read is
// not there any more: [Log.Load], which needs the lock between processes, goes on.
var ErrBehind = errors.New("the log was replaced more than once")

// ErrSuspect is the answer of [Log.Flush] when an earlier sync of the log has failed, in any process.
var ErrSuspect = errors.New("an earlier one failed, and the log could not be replaced since")

// Damaged is the error of a stored file that cannot be trusted.
func Damaged(path, reason string) error {
	return driver.Errorf("open", path, driver.ErrUnavailable, "the file is damaged: %s; nothing was changed: put back what was there, or remove the directory when nobody uses it", reason)
}

// Unwritten is the error of a write that failed.
func Unwritten(path string, err error) error {
	return &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone, Err: fmt.Errorf("write %s: %w; see that the disk works and has room", path, cause(err))}
}

// cause drops the path, which the message has.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
