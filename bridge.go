package holdfast

import (
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/bridge"
)

func init() {
	bridge.Lose = func(hold any, cause error) { hold.(*Hold).g.c.lost(cause) }
	bridge.Driver = func(space any) driver.Driver { return space.(*Space).r.d }
}
