package holdfast_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// pager deletes in pages of what it is asked for, and refuses after some.
type pager struct {
	driver.Driver
	keys, pages int
	limits      []int
}

func (p *pager) Txn(_ context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	if p.pages--; p.pages < 0 {
		return nil, driver.Errorf("", "", driver.ErrUnavailable, "not now")
	}
	n := min(p.keys, r.Then[0].Limit)
	p.keys -= n
	p.limits = append(p.limits, r.Then[0].Limit)
	return &driver.TxnReply{OK: true, Results: []driver.OpResult{{Count: int64(n), More: p.keys > 0}}}, nil
}

// DeleteRange asks for pages until nothing is left, and an error after some does not
// claim that nothing was done.
func TestKV_DeleteRange(t *testing.T) {
	p := &pager{Driver: newToy(driver.FeatureKV, driver.FeatureTxn), keys: 2500, pages: 99}
	k := openOn(t, p).KV()
	if n, err := k.DeleteRange(t.Context(), "p/"); n != 2500 || err != nil || len(p.limits) != 3 {
		t.Errorf("deleted %d in %d pages, %v", n, len(p.limits), err)
	}
	for pages, notDone := range map[int]bool{0: true, 2: false} {
		p.keys, p.pages = 2500, pages
		n, err := k.DeleteRange(t.Context(), "p/")
		if n != int64(1000*pages) || !errors.Is(err, holdfast.ErrUnavailable) || holdfast.NotDone(err) != notDone {
			t.Errorf("after %d pages: deleted %d, not done %v, %v", pages, n, holdfast.NotDone(err), err)
		}
	}
}
