package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// schedule says where a node saves backups of itself, how often, and how many stay.
type schedule struct {
	dir   string
	every time.Duration
	keep  int
}

// check refuses what makes no sense, before anything is started.
func (s *schedule) check() error {
	switch {
	case s.dir == "":
		return nil
	case s.every < time.Second || s.keep < 1:
		return usagef("--backup-every is at least 1s, --backup-keep at least 1", "a backup every %s, of which %d stay, makes no sense", s.every, s.keep)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return &failure{code: exitUsage, err: err, hint: "--backup-dir names a directory that can be written"}
	}
	return nil
}

// backuper is a node that saves all that it knows.
type backuper interface {
	Backup(ctx context.Context, w io.Writer) error
}

// run saves backups until ctx ends, and tells what went wrong; the next one is tried all
// the same.
func (s *schedule) run(ctx context.Context, node backuper, told func(error)) {
	if s.dir == "" {
		return
	}
	for {
		select {
		case <-time.After(s.every):
		case <-ctx.Done():
			return
		}
		if err := s.once(ctx, node, time.Now()); err != nil && ctx.Err() == nil {
			told(fmt.Errorf("the backup into %s failed, and is tried again in %s: %w", s.dir, s.every, err))
		}
	}
}

// What backups of a schedule are called.
const (
	backupPrefix = "holdfast-"
	backupSuffix = ".snap"
)

// once saves one backup, which has its name only when it is whole, and removes the oldest.
func (s *schedule) once(ctx context.Context, node backuper, now time.Time) error {
	f, err := os.CreateTemp(s.dir, ".holdfast-snapshot-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(node.Backup(ctx, f), f.Sync(), f.Close()); err != nil {
		return err
	}
	name := backupPrefix + now.UTC().Format("20060102T150405.000Z") + backupSuffix
	if err := os.Rename(f.Name(), filepath.Join(s.dir, name)); err != nil {
		return err
	}
	return s.prune()
}

// prune removes all but the newest backups: their names are in the order of time. Other
// files stay.
func (s *schedule) prune() error {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	var saved []string
	for _, f := range files {
		if strings.HasPrefix(f.Name(), backupPrefix) && strings.HasSuffix(f.Name(), backupSuffix) {
			saved = append(saved, f.Name())
		}
	}
	slices.Sort(saved)
	for ; len(saved) > s.keep; saved = saved[1:] {
		err = errors.Join(err, os.Remove(filepath.Join(s.dir, saved[0])))
	}
	return err
}
