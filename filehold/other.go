//go:build !linux

package filehold

import (
	"errors"

	"github.com/holdfast-io/holdfast/driver"
)

func open(dir string) (driver.Driver, error) {
	return nil, driver.Errorf("open", dir, errors.ErrUnsupported, "directories need the kernel of Linux")
}
