package filehold

import (
	"io/fs"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
)

// errTooLarge is the kind of a request that no log takes.
var errTooLarge = fs.ErrInvalid

// refusalOf is the error of an order, with what stands in its way; nil: it
// succeeded.
func refusalOf(o *order) error {
	r := &o.result
	if r.Code == core.CodeOK {
		return nil
	}
	e := convert.Refusal(r.Code, r.Text)
	if r.Code == core.CodeHeld {
		e.Holders, e.Waiting = endless(convert.Holders(o.now, r.Holders, o.cmd.Wants)), int(r.Waiting)
	}
	return e
}

func resource(now int64, r *core.ResourceInfo) driver.Resource {
	d := convert.Resource(now, r)
	d.Holders, d.Waiters = endless(d.Holders), endless(d.Waiters)
	return d
}

// endless takes the time left from claims: sessions last as long as their
// process.
func endless(list []driver.Claim) []driver.Claim {
	for i := range list {
		list[i].ExpiresIn = 0
	}
	return list
}
