package gather

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/guard"
)

// files looks for files, and for those that are waited for four times a second.
type files struct {
	dir  string
	stat func(string) (fs.FileInfo, error) // os.Stat
}

func (s *files) Find(ctx context.Context, inputs []guard.Input) guard.Inputs {
	const atOnce = 64 // some may be on mounts that do not answer
	return eachOf(ctx, atOnce, inputs, func(ctx context.Context, in guard.Input) (guard.Fact, error) {
		path := under(s.dir, in.Name)
		info, err := within(ctx, path, func() (fs.FileInfo, error) { return s.stat(path) })
		f := guard.Fact{From: path}
		switch {
		case err == nil:
			f.Is, f.Since = true, info.ModTime()
		case !missing(err):
			return f, err
		}
		return f, based(ctx, s.dir, in.Name)
	})
}

func (s *files) Follow(ctx context.Context, wanted func() []guard.Input, changed func(...guard.Input)) {
	const every, most = 250 * time.Millisecond, time.Second
	was := guard.Inputs{}
	poll(ctx, every, wanted, func(inputs ...guard.Input) {
		ctx, cancel := context.WithTimeout(ctx, most) // one that does not answer keeps no other from being seen
		defer cancel()
		now := s.Find(ctx, inputs)
		for in, f := range now {
			if before, known := was[in]; !known || before.Is != f.Is || before.Err != f.Err {
				changed(in)
			}
		}
		was = now
	})
}

// missing: there is no such file. A path below something that is no directory names none either, as
// .git/x does where .git is a file.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// based is the error of a look at a path if the directory that it begins in is not there: nothing is known of the path then.
// It is asked after the look: a working directory that was deleted does not come back.
func based(ctx context.Context, dir, path string) error {
	if filepath.IsAbs(path) {
		return nil
	}
	if err := there(ctx, orText(dir, ".")); err != nil {
		return fmt.Errorf("the directory that relative paths begin in: %w", err)
	}
	return nil
}

// there is nil if a path is a directory. A working directory that was deleted is none, although the kernel still has it,
// with nothing in it, for the processes that are there.
func there(ctx context.Context, path string) error {
	info, err := within(ctx, path, func() (fs.FileInfo, error) {
		if filepath.IsAbs(path) {
			return os.Stat(path)
		}
		if _, err := os.Getwd(); err != nil {
			return nil, fmt.Errorf("the working directory: %w", err)
		}
		return os.Stat(path)
	})
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "stat", Path: path, Err: syscall.ENOTDIR}
	}
	return err
}

// under is a path that begins in dir, unless it begins at the root. It is not cleaned: a slash at its end, or a .. after a link, is
// the kernel's to judge.
func under(dir, path string) string {
	if dir == "" || filepath.IsAbs(path) {
		return path
	}
	return strings.TrimSuffix(dir, "/") + "/" + path
}
