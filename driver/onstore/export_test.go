package onstore

import (
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// SetWall sets the clock of the machine that d runs on.
func SetWall(d driver.Driver, wall func() time.Time) { d.(*onStore).wall = wall }
