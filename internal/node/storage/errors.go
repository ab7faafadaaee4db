package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// What can be wrong, to be asked with errors.Is. Bad arguments are
// fs.ErrInvalid; what the system answers (syscall.EIO, syscall.ENOSPC,
// fs.ErrPermission) stays visible too.
var (
	// ErrDamaged: something that had been durable is gone or changed. A voter
	// with such a directory has forgotten promises and must not take part again.
	ErrDamaged = errors.New("damaged")
	// ErrUnfinished: Found was cut short here. It is an ErrDamaged of a store that was never
	// whole: no node has promised anything with it.
	ErrUnfinished = fmt.Errorf("%w: %s", ErrDamaged, Unfinished)
	// ErrLocked: another process uses the directory.
	ErrLocked = errors.New("in use by another process")
	// ErrForeign: the directory belongs to another cluster, node or group.
	ErrForeign = errors.New("belongs to somebody else")
	// ErrVersion: written by a newer version of this program.
	ErrVersion = errors.New("written by a newer version")
	// ErrCompacted: the entry is gone; a snapshot covers it.
	ErrCompacted = errors.New("compacted")
	// ErrUnavailable: the entry is not in the log yet.
	ErrUnavailable = errors.New("not in the log")
	// ErrNoRoom: the disk is full, and nothing was changed: try again when there is room.
	ErrNoRoom = errors.New("no room on the disk")
	// ErrCopied: the directory is that of another process, or may be: it is a copy.
	ErrCopied = errors.New("the directory is a copy")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("closed")
)

// Error is what every function of this package returns for a failure.
type Error struct {
	Op     string // what was being done: "open", "append", "sync" …
	File   string // the file it concerns, if one does
	Offset int64  // where in the file; -1 if that says nothing
	Err    error  // the cause
	Advice string // what to do next, in a sentence
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("storage: " + e.Op)
	if e.File != "" {
		b.WriteString(" " + e.File)
	}
	if e.Offset >= 0 {
		fmt.Fprintf(&b, " at byte %d", e.Offset)
	}
	b.WriteString(": " + e.Err.Error())
	if e.Advice != "" {
		b.WriteString("; " + e.Advice)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// The ways out, each told in one place.
const (
	adviseRestart = "the node must stop; free space or mend the disk, then start it again: nothing acknowledged is lost"
	adviseGone    = "the directory was removed or replaced while the node ran, and another could be started in its place: the node must stop; put the directory back, or restore a backup"
	adviseAccess  = "make it readable and writable for this user, on a healthy disk, then start again; nothing was changed"
	adviseLocked  = "stop the other process or give this one a directory of its own"
	adviseForeign = "give the directory that this node was created with, or an empty one; nothing was changed"
	adviseVersion = "start the newer program; nothing was changed"
	adviseBackup  = "take another backup; nothing was changed"
	adviseEmpty   = "name a new or empty directory; nothing was changed"
	adviseAgain   = "give the command again, with this directory or another; nothing was changed"
	adviseRewrite = "free space or mend the disk, then give the command again, with this directory or another"
	adviseDamaged = "nothing was changed; in a cluster move the files aside and let the node join again under a new id, " +
		"alone restore a backup or accept the loss"
)

func invalid(op, format string, args ...any) error {
	return &Error{Op: op, Offset: -1, Err: fmt.Errorf("%w: %s", fs.ErrInvalid, fmt.Sprintf(format, args...))}
}

func failed(op, file string, err error, advice string) error {
	return &Error{Op: op, File: file, Offset: -1, Err: err, Advice: advice}
}
