package onstore

import (
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// SetWall sets the clock of the machine that d runs on.
func SetWall(d driver.Driver, wall func() time.Time) { d.(*onStore).wall = wall }

// Holds is how many holds d keeps.
func Holds(d driver.Driver) int {
	o := d.(*onStore)
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.holds)
}

// Kill ends all that d does, as if its process had been killed.
func Kill(d driver.Driver) {
	o := d.(*onStore)
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.kill()
}
