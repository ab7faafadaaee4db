package natshold

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
)

// A bucket has a mark: a key that says of which version it is, and by being there
// that the bucket still has what it answered. Whatever forgets in order of age, a
// limit that somebody has set or a purge, takes it before what is newer. So a key
// that is not there is believed to be free only after a look at the mark, and the
// set-up of the bucket is looked at again while it is used.

const (
	// markKey is where the mark is. No key of ours is called so.
	markKey = "holdfast"
	// version is that of what this program writes.
	//
	//	1  as it was before there was a mark, and with it
	version = 1
	// lookEvery is how often a client that writes looks at the bucket's set-up.
	lookEvery = time.Second
)

// mark is the value of the key.
type mark struct {
	Version uint64 `json:"version"`
}

// marked is a mark that was seen.
type marked struct {
	revision atomic.Uint64 // 0: the user may not write it
	looked   atomic.Int64  // when the set-up was looked at, of driver.Now
}

// adopt reads the mark, or makes it: in a new bucket, and in one of before there
// were marks. One that had a mark, or that had something and is empty, has been
// purged.
func (s *store) adopt(ctx context.Context, info *nats.StreamInfo) error {
	for {
		m, err := s.last(ctx, markKey)
		if err != nil {
			return err
		}
		if m != nil {
			return s.meet(ctx, m)
		}
		if !unused(info) && (info.State.Msgs == 0 || info.Config.Metadata[madeBy] != "") {
			return driver.Errorf("open", "", driver.ErrUnavailable, "the bucket %q was purged: what it had answered is lost, and holds of before may be believed in; delete it when nobody uses it, and open it anew", s.bucket)
		}
		revision, err := s.write(ctx, 0)
		if errors.Is(err, fs.ErrPermission) {
			return nil // a client that may not write takes nothing either
		}
		if err == nil {
			s.mark.revision.Store(uint64(revision))
		}
		if err == nil || !errors.Is(err, driver.ErrConflict) {
			return err
		}
		if info, err = s.find(ctx); err != nil {
			return err
		}
	}
}

// unused reports whether a bucket is where it began: where Open had it begin, or
// where begin moved it.
func unused(info *nats.StreamInfo) bool {
	first := info.Config.FirstSeq
	if first == 0 {
		first = firstRevision(info.Created)
	}
	return info.State.LastSeq+1 == first
}

// write writes the mark of this version over one that is at old.
func (s *store) write(ctx context.Context, old driver.Revision) (driver.Revision, error) {
	text, err := json.Marshal(mark{s.known})
	if err != nil {
		return 0, err
	}
	return s.send(ctx, &nats.Msg{Subject: s.prefix + toBucket(markKey), Data: text}, old)
}

// meet takes a mark as it is, if this program knows its version, and raises it to
// its own.
func (s *store) meet(ctx context.Context, m *nats.RawStreamMsg) error {
	is, err := s.readMark(m)
	if err != nil {
		return err
	}
	s.mark.revision.Store(m.Sequence)
	if is.Version >= s.known {
		return nil
	}
	revision, err := s.write(ctx, driver.Revision(m.Sequence))
	switch {
	case err == nil:
		s.mark.revision.Store(uint64(revision))
	case errors.Is(err, driver.ErrConflict), errors.Is(err, fs.ErrPermission):
		return nil // another has raised it, or will
	}
	return err
}

// readMark is the mark in a message; an error if it is of a newer version.
func (s *store) readMark(m *nats.RawStreamMsg) (mark, error) {
	var is mark
	if ended(m.Header) {
		return is, driver.Errorf("", "", driver.ErrUnavailable, "the key %q of the bucket %q was deleted, which says that it keeps what it answers: delete the bucket when nobody uses it, and open it anew", markKey, s.bucket)
	}
	if err := json.Unmarshal(m.Data, &is); err != nil || is.Version == 0 {
		return is, driver.Errorf("", "", driver.ErrUnavailable, "the key %q of the bucket %q is not ours: use another bucket", markKey, s.bucket)
	}
	if is.Version > s.known {
		return is, driver.Errorf("", "", errors.ErrUnsupported, "the bucket %q is of version %d, and this program knows up to %d: update it; nothing was changed", s.bucket, is.Version, s.known)
	}
	return is, nil
}

// absent is asked whether it is to be believed that a key is not there.
func (s *store) absent(ctx context.Context) error {
	seen := s.mark.revision.Load()
	if seen == 0 {
		return nil
	}
	m, err := s.last(ctx, markKey)
	if err != nil || m != nil && m.Sequence == seen {
		return err
	}
	return s.look(ctx)
}

// lookNow looks at the set-up of the bucket, if that was not done lately. Nothing
// comes of a look that fails: the next one is soon.
func (s *store) lookNow(ctx context.Context) error {
	now := driver.Now().UnixNano()
	last := s.mark.looked.Load()
	if now-last < int64(lookEvery) || !s.mark.looked.CompareAndSwap(last, now) {
		return nil
	}
	if err := s.look(ctx); s.Broken() != nil {
		return err
	}
	return nil
}

// look ends the use of a bucket that does not keep any more what it answers, and
// says why.
func (s *store) look(ctx context.Context) error {
	seen := s.newest.Load() // before it answers: others write meanwhile
	info, err := s.find(ctx)
	if err != nil {
		return err
	}
	if !info.Created.Equal(s.created) {
		return s.over("the bucket was made anew, and what was in it is lost")
	}
	if wrong := unfit(&info.Config, s.prefix); wrong != "" {
		return s.over("the bucket " + wrong + ", which somebody has set since: take it back")
	}
	if info.State.LastSeq < seen {
		return s.rewound(seen, info.State.LastSeq)
	}
	s.suit(info)
	if s.mark.revision.Load() == 0 {
		return nil
	}
	m, err := s.last(ctx, markKey)
	if err != nil {
		return err
	}
	if m == nil {
		return s.over("the bucket was purged, or a limit of it was set for a while (max_age, max_bytes, max_msgs): what it had answered is lost")
	}
	if _, err := s.readMark(m); err != nil {
		return s.end(err.(*driver.Error))
	}
	s.mark.revision.Store(m.Sequence)
	return nil
}

// over ends the use of the bucket.
func (s *store) over(why string) error {
	return s.end(driver.Errorf("", "", driver.ErrUnavailable, "%s; holds end with it: see what is missing, and open a new Space", why))
}

// end is over with an error of its own. The first one counts.
func (s *store) end(e *driver.Error) error {
	s.gone.CompareAndSwap(nil, e)
	return s.gone.Load()
}

// Broken is why the bucket cannot be used any more; nil: it can.
func (s *store) Broken() error {
	if e := s.gone.Load(); e != nil {
		return e
	}
	return nil
}
