//go:build !linux

package child

import (
	"errors"
	"fmt"
	"io"
)

func (c *Command) run(Hold) (Status, error) {
	return Status{}, fmt.Errorf("running a command under a hold needs Linux: %w", errors.ErrUnsupported)
}

// Warden is not needed where commands are not run.
func Warden(io.Reader, io.Writer) int { return 1 }
