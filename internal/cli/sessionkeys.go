package cli

import (
	"context"
	"errors"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// keysUnder are the keys that begin with a prefix, and their sessions. A server is asked by plain
// calls: a Space reads keys under a session of its own, and where there are as many as the server
// takes, nobody could see which to end.
func (a *app) keysUnder(ctx context.Context, left func() time.Duration, s *holdfast.Space, prefix string) iter.Seq2[holdfast.Entry, error] {
	if a.revokes() != nil {
		return s.KV().Range(ctx, prefix, holdfast.KeysOnly())
	}
	return func(yield func(holdfast.Entry, error) bool) {
		pages := &keyPages{ask: &pb.RangeRequest{Prefix: prefix, KeysOnly: true}, yield: yield}
		ctx := metadata.AppendToOutgoingContext(ctx, wire.NamespaceMetadata(a.namespace())...)
		err := a.onNodes(ctx, left, always, func(c *grpc.ClientConn) error { return pages.read(ctx, pb.NewKVServiceClient(c)) })
		if err != nil && !errors.Is(err, errEnough) {
			yield(holdfast.Entry{}, err)
		}
	}
}

// keyPages are the keys that a server tells page by page. It goes on where it is if another node
// has to be asked.
type keyPages struct {
	ask   *pb.RangeRequest
	yield func(holdfast.Entry, error) bool
}

// errEnough: no more keys are wanted.
var errEnough = errors.New("enough")

func (p *keyPages) read(ctx context.Context, c pb.KVServiceClient) error {
	for {
		page, err := c.Range(ctx, p.ask)
		if err != nil {
			return err
		}
		for _, k := range page.GetKvs() {
			if !p.yield(holdfast.Entry{Key: k.GetKey(), Session: wire.LeaseID(k.GetSession())}, nil) {
				return errEnough
			}
		}
		if p.ask.After = page.GetNext(); p.ask.After == "" {
			return nil
		}
	}
}
