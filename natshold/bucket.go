package natshold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
)

// openStore finds the bucket, or makes it.
func openStore(ctx context.Context, l *link, o Options) (*store, error) {
	js, err := l.nc.JetStream()
	if err != nil {
		return nil, err
	}
	s := &store{link: l, js: js, stream: "KV_" + o.Bucket, prefix: "$KV." + o.Bucket + "."}
	info, err := s.find(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = s.make(ctx, o)
	}
	if err != nil {
		return nil, unopened(ctx, err)
	}
	if wrong := unfit(&info.Config, s.prefix); wrong != "" {
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "the bucket %q %s: use another", o.Bucket, wrong)
	}
	s.direct = info.Config.AllowDirect && info.Config.Replicas <= 1 && len(info.Alternates) == 0
	return s, nil
}

// unopened tells what is wrong with a server that does not know of buckets.
func unopened(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return &driver.Error{Op: "open", Kind: ctx.Err(), Outcome: driver.NotDone, Err: err}
	case errors.Is(err, nats.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return driver.Errorf("open", "", driver.ErrUnavailable, "JetStream is not enabled on the server (see its option -js): %w", err)
	case errors.Is(err, nats.ErrJetStreamNotEnabledForAccount):
		return driver.Errorf("open", "", driver.ErrUnavailable, "JetStream is not enabled for the user's account: %w", err)
	}
	return err
}

// find asks for the bucket.
func (s *store) find(ctx context.Context) (info *nats.StreamInfo, err error) {
	err = s.ask(ctx, "$JS.API.STREAM.INFO."+s.stream, func(ctx context.Context) error {
		info, err = s.js.StreamInfo(s.stream, nats.Context(ctx))
		return err
	})
	return info, err
}

// make makes it as the tools of NATS would, unless another has made it since.
func (s *store) make(ctx context.Context, o Options) (info *nats.StreamInfo, err error) {
	if o.Existing {
		return nil, driver.Errorf("open", "", fs.ErrNotExist, "there is no bucket %q: make it, or leave create=false out", o.Bucket)
	}
	cfg := &nats.StreamConfig{
		Name: s.stream, Subjects: []string{s.prefix + ">"}, Description: "holdfast",
		MaxMsgsPerSubject: int64(o.History), Replicas: o.Replicas, Discard: nats.DiscardNew,
		AllowRollup: true, DenyDelete: true, AllowDirect: true,
		MaxBytes: -1, MaxMsgSize: -1, MaxMsgs: -1, MaxConsumers: -1, Duplicates: 2 * time.Minute,
	}
	if o.Memory {
		cfg.Storage = nats.MemoryStorage
	}
	err = s.ask(ctx, "$JS.API.STREAM.CREATE."+s.stream, func(ctx context.Context) error {
		info, err = s.js.AddStream(cfg, nats.Context(ctx))
		return err
	})
	switch {
	case errors.Is(err, nats.ErrStreamNameAlreadyInUse):
		return s.find(ctx)
	case errors.Is(err, fs.ErrPermission):
		return nil, driver.Errorf("open", "", fs.ErrPermission, "there is no bucket %q, and no right to make it: %w", o.Bucket, err)
	case refusesReplicas(err):
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "%d replicas are more than the cluster has servers: %w", o.Replicas, err)
	}
	return info, err
}

func refusesReplicas(err error) bool {
	var e nats.JetStreamError
	return errors.As(err, &e) && e.APIError() != nil && e.APIError().ErrorCode == codeReplicasMissing
}

// unfit says why a bucket cannot keep locks.
func unfit(c *nats.StreamConfig, prefix string) string {
	switch {
	case c.MaxAge > 0:
		return fmt.Sprintf("forgets everything after %s", c.MaxAge)
	case c.Mirror != nil || len(c.Sources) > 0:
		return "is a copy of another, and cannot be compared and swapped"
	case !slices.Contains(c.Subjects, prefix+">"):
		return "is a stream that is no key-value bucket"
	case c.Discard == nats.DiscardOld && (c.MaxBytes > 0 || c.MaxMsgs > 0):
		return "throws old keys away when it is full"
	}
	return ""
}
