package cli

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/wire"
)

// unfit tells where to look if a group refuses something as it stands now.
func unfit(err error) error {
	if errors.Is(err, holdfast.ErrConflict) {
		return &failure{code: exitNo, err: err, hint: "holdfast status and holdfast member ls tell how the group stands now"}
	}
	return err
}

// taken says what to do about a number or an address that another member has: the node there may be the very one that is
// meant.
func taken(err error) error {
	if err = wire.Error(err); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), " already") {
		return err
	}
	return &failure{code: exitUsage, err: err, hint: "nothing was changed; holdfast member ls tells which node has it. If that is the node that you mean: one that has moved is told by holdfast member update NUMBER PEER CLIENT (to the address of another when it runs and answers there as itself; where clients find another when that one has been told a third address for them), and one that lost its disk " +
		"is started by its usual command line on an empty directory (--no-replace: holdfast member replace NUMBER); one that is gone for good frees its addresses by holdfast member remove NUMBER. Else give the new node a number and addresses of its own"}
}
