package filehold

import (
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// Seams are what tests replace.
type Seams struct {
	BootID           func() (string, error)
	SyncLog, SyncCtl func(fd int) error
	Fallback         time.Duration
	CompactAt        uint64
	Flock            func(fd, how int) error
}

// NewWith is New with seams replaced. It has no effect on a directory that the
// process uses already.
func NewWith(dir string, change func(*Seams)) (driver.Driver, error) {
	p := production
	x := Seams{p.bootID, p.syncLog, p.syncCtl, p.fallback, p.compactAt, p.flock}
	change(&x)
	return openWith(dir, seams{x.BootID, x.SyncLog, x.SyncCtl, x.Fallback, x.CompactAt, x.Flock})
}

// TokenBlock is how many tokens may be skipped when the power fails.
const TokenBlock = tokenBlock
