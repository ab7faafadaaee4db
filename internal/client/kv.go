package client

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
)

// Txn runs a transaction.
func (c *Client) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	cmd := core.Command{Op: core.OpTxn, If: convert.Compares(r.If), Then: convert.KeyOps(r.Then), Else: convert.KeyOps(r.Else)}
	res, at, err := c.ask(ctx, &cmd)
	if err != nil {
		return nil, err
	}
	return &driver.TxnReply{OK: res.OK, Revision: driver.Revision(res.Revision), Results: convert.Results(at, res.Keys)}, nil
}
