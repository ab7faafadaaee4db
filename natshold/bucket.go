package natshold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/natsconn"
)

// madeBy is a property of a bucket that Open made: it has had a mark from the
// beginning.
const madeBy = "holdfast"

// openPatience is how long Open waits for each answer, unless its context ends
// before: a server that makes a bucket has more to do than one that serves a key.
const openPatience = 10 * time.Second

// openStore finds the bucket, or makes it, and marks it.
func openStore(ctx context.Context, l *natsconn.Conn, o Options) (*store, error) {
	js, err := l.JetStream()
	if err != nil {
		return nil, err
	}
	s := &store{conn: l, patience: openPatience, js: js, bucket: o.Bucket, stream: "KV_" + o.Bucket, prefix: "$KV." + o.Bucket + ".", known: o.version, sweepAge: o.sweepAge, sweepSkew: o.sweepSkew,
		begins: make(chan struct{}, beginsAtATime), reads: make(chan struct{}, readsAtATime)}
	info, err := s.find(ctx)
	if errors.Is(err, errNoBucket) {
		info, err = s.make(ctx, o)
	}
	if err != nil {
		return nil, natsconn.Unopened(ctx, err)
	}
	if wrong := unfit(&info.Config, s.prefix); wrong != "" {
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "the bucket %q %s: use another", o.Bucket, wrong)
	}
	s.created = info.Created
	s.suit(info)
	if err := s.begin(ctx, info); err != nil {
		return nil, err
	}
	err = s.adopt(ctx, info)
	s.patience = o.patience
	return s, err
}

// find asks for the bucket.
func (s *store) find(ctx context.Context) (info *nats.StreamInfo, err error) {
	err = s.ask(ctx, "$JS.API.STREAM.INFO."+s.stream, func(ctx context.Context) error {
		info, err = s.js.StreamInfo(s.stream, nats.Context(ctx))
		return err
	})
	return info, err
}

// make makes it, unless another has made it since. Revisions begin where those of a
// bucket that had the name before cannot have come to. It cannot be purged: that
// would free what is held.
func (s *store) make(ctx context.Context, o Options) (info *nats.StreamInfo, err error) {
	if o.Existing {
		return nil, driver.Errorf("open", "", fs.ErrNotExist, "there is no bucket %q: make it, or leave create=false out", o.Bucket)
	}
	cfg := &nats.StreamConfig{
		Name: s.stream, Subjects: []string{s.prefix + ">"}, Description: "holdfast",
		MaxMsgsPerSubject: int64(o.History), Replicas: o.Replicas, Discard: nats.DiscardNew,
		FirstSeq: firstRevision(time.Now()), DenyPurge: true, AllowDirect: true, Metadata: map[string]string{madeBy: "1"},
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
	case natsconn.RefusesReplicas(err):
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "%d replicas are more than the cluster has servers: %w", o.Replicas, err)
	case natsconn.RefusesSettings(err):
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "no bucket %q can be made: %w: choose another name", o.Bucket, err)
	}
	return info, err
}

// firstRevision is that of a bucket made at a time: 2²⁰ a second, about one a
// microsecond, which is more than a server takes.
func firstRevision(at time.Time) uint64 {
	return uint64(at.Unix())<<20 | uint64(at.Nanosecond())<<20/1e9
}

// begin sees to it that a bucket that was never used does not begin with revision
// 1, as those do that the tools of NATS make: whatever is below a revision of the
// time when it was made, which is nothing, is purged. Programs that do so at once
// purge up to the same one.
func (s *store) begin(ctx context.Context, info *nats.StreamInfo) error {
	if info.State.LastSeq > 0 {
		return nil
	}
	const advice = "its tokens would repeat those of an earlier bucket of its name"
	if info.Config.DenyPurge {
		return driver.Errorf("open", "", errors.ErrUnsupported, "the bucket %q begins with revision 1, and %s: it takes a server from 2.10 on to make one", s.bucket, advice)
	}
	err := s.request(ctx, "$JS.API.STREAM.PURGE."+s.stream, map[string]any{"seq": firstRevision(info.Created)})
	if errors.Is(err, fs.ErrPermission) {
		return driver.Errorf("open", "", fs.ErrPermission, "the bucket %q was never used: %s, unless a user with this right opens it: %w", s.bucket, advice, err)
	}
	if err == nil {
		info.State.LastSeq = firstRevision(info.Created) - 1
	}
	return err
}

// request asks JetStream for something that the library has no call for with a
// context.
func (s *store) request(ctx context.Context, subject string, body any) error {
	return s.requestFor(ctx, subject, body, &struct{}{})
}

// requestFor is request with an answer.
func (s *store) requestFor(ctx context.Context, subject string, body, reply any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return s.ask(ctx, subject, func(ctx context.Context) error {
		m, err := s.conn.RequestWithContext(ctx, subject, text)
		if err != nil {
			return err
		}
		var failed struct {
			Error *nats.APIError `json:"error"`
		}
		if err := json.Unmarshal(m.Data, &failed); err != nil {
			return err
		}
		if failed.Error != nil {
			return failed.Error
		}
		return json.Unmarshal(m.Data, reply)
	})
}

// suit notes what a bucket's set-up means for this client. Any server that has the
// bucket may be asked for a key if there is only one. Of several, one that lags
// behind would answer with what was true before, and so would a mirror; then the
// one that decides is asked, which takes longer.
func (s *store) suit(info *nats.StreamInfo) {
	c := &info.Config
	s.direct.Store(c.AllowDirect && c.Replicas <= 1 && len(info.Alternates) == 0)
	s.purges.Store(!c.DenyPurge)
	s.keeps.Store(c.DenyPurge && c.DenyDelete)
}

// unfit says why a bucket cannot keep locks, with the setting.
func unfit(c *nats.StreamConfig, prefix string) string {
	switch {
	case c.Mirror != nil || len(c.Sources) > 0:
		return "is a copy of another (mirror, sources), and cannot be compared and swapped"
	case !slices.Contains(c.Subjects, prefix+">"):
		return "is a stream that is no key-value bucket (subjects)"
	case c.MaxAge > 0:
		return fmt.Sprintf("forgets everything after %s (max_age)", c.MaxAge)
	case c.Retention != nats.LimitsPolicy:
		return fmt.Sprintf("forgets what somebody has read (retention %s)", c.Retention)
	case c.Discard == nats.DiscardOld && c.MaxBytes > 0:
		return fmt.Sprintf("throws old keys away when it has %d bytes (discard old, max_bytes)", c.MaxBytes)
	case c.Discard == nats.DiscardOld && c.MaxMsgs > 0:
		return fmt.Sprintf("throws old keys away when it has %d messages (discard old, max_msgs)", c.MaxMsgs)
	case c.DiscardNewPerSubject:
		return "refuses to change a key that has its history (discard_new_per_subject)"
	case c.MaxMsgsPerSubject < 1:
		return "keeps every state of a key for ever (max_msgs_per_subject)"
	case c.NoAck:
		return "does not answer (no_ack)"
	case c.Sealed:
		return "takes nothing any more (sealed)"
	}
	return ""
}
