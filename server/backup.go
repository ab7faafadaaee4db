package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// Backup writes everything that this node knows to w, for [Restore]: on the
// leader that is all that was answered before, on another node perhaps a little
// less. The node goes on meanwhile. ctx bounds how long the state may take to
// reach the node's own disk, from where it is copied.
//
// A backup carries its version, the cluster's id and a checksum over all of it.
// Only one for which Backup returned nil is whole; Restore refuses the others.
func (s *Server) Backup(ctx context.Context, w io.Writer) error {
	err := s.backup(ctx, w)
	if err == nil {
		return nil
	}
	if _, told := errors.AsType[*driver.Error](err); told {
		return err
	}
	return &driver.Error{Op: "back up", Name: s.cfg.name(), Err: err}
}

func (s *Server) backup(ctx context.Context, w io.Writer) error {
	for {
		index, err := s.loop.snapshot(ctx)
		if err == nil {
			err = s.loop.settled(ctx)
		}
		if err != nil {
			return err
		}
		r, err := s.disk.OpenSnapshot(index)
		if errors.Is(err, fs.ErrNotExist) {
			continue // newer ones have replaced it meanwhile
		}
		if err != nil {
			return err
		}
		return save(r, w)
	}
}

func save(r *storage.SnapshotReader, w io.Writer) error {
	defer r.Close()
	return r.Save(w)
}

// awaited is a caller that waits for a snapshot with an entry; ready gets its index, or 0: there is no room for one.
type awaited struct {
	index uint64
	ready chan uint64
}

// cramped ends a backup that finds no room on the node's own disk, where it is made first.
func cramped() error {
	return driver.Errorf("back up", "", driver.ErrUnavailable, "the disk of this node has no room for a snapshot, from which a backup is copied: make room there (holdfast serve --data), or ask another node")
}

// snapshot waits for a snapshot of what is applied by now.
func (l *loop) snapshot(ctx context.Context) (index uint64, err error) {
	if l.disk.full() {
		return 0, cramped() // it would stand behind the log, which waits for room
	}
	ready, wants := make(chan uint64, 1), make(chan uint64, 1)
	if err := l.do(ctx, func() {
		want := l.node.WantSnapshot(l.now())
		if wants <- want; want > 0 {
			l.backups = append(l.backups, awaited{want, ready})
		}
	}); err != nil {
		return 0, err
	}
	if <-wants == 0 {
		e := driver.Errorf("back up", "", driver.ErrUnavailable, "this node has no state yet: add it to a group, or wait until it has found the others")
		e.RetryAfter = time.Second
		return 0, e
	}
	index, err = unlessCramped(ctx, l, ready)
	if err == nil && index == 0 {
		err = cramped()
	}
	return index, err
}

// settled waits until everything is done that the disk was asked for before: a snapshot that the
// node has installed is in a file then.
func (l *loop) settled(ctx context.Context) error {
	failed, err := unlessCramped(ctx, l, l.disk.ask(func(*disk.Disk) error { return nil }))
	return cmp.Or(err, failed)
}

// unlessCramped is what c gives. It looks now and then whether the log waits for room by now: what a backup needs
// stands behind it, and would come when there is some again, or never.
func unlessCramped[T any](ctx context.Context, l *loop, c <-chan T) (got T, err error) {
	look := time.NewTicker(noRoomFor)
	defer look.Stop()
	for {
		select {
		case got = <-c:
			return got, nil
		case <-look.C:
			if l.disk.full() {
				return got, cramped()
			}
		case <-l.stopped:
			return got, &driver.Error{Op: "back up", Kind: driver.ErrClosed, Outcome: driver.NotDone, Err: errStopped}
		case <-ctx.Done():
			return got, context.Cause(ctx)
		}
	}
}

// wakeBackups tells the callers that wait for a snapshot which is durable now.
func (l *loop) wakeBackups() {
	if len(l.backups) == 0 {
		return
	}
	have := l.node.Status().SnapshotIndex
	rest := l.backups[:0]
	for _, b := range l.backups {
		if have < b.index {
			rest = append(rest, b)
			continue
		}
		b.ready <- have
	}
	l.backups = rest
}

// refuseBackups tells the callers that wait for a snapshot that the disk has no room for it. The node
// tries again, for itself: they would wait as long as the disk is full.
func (l *loop) refuseBackups() {
	for _, b := range l.backups {
		b.ready <- 0
	}
	l.backups = nil
}
