//go:build !linux

package filehold

import (
	"errors"
	"io/fs"

	"github.com/holdfast-io/holdfast/driver"
)

func open(dir string, _ fs.FileMode) (driver.Driver, error) {
	return nil, driver.Errorf("open", dir, errors.ErrUnsupported, "directories need the kernel of Linux")
}
