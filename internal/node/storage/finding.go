package storage

import (
	"fmt"
	"path/filepath"
)

// Kind names what a finding is about.
type Kind string

// The kinds of findings.
const (
	TornTail        Kind = "torn tail"        // the last write did not finish; it was never acknowledged
	BadRecord       Kind = "bad record"       // a durable record does not fit its checksum
	MisplacedRecord Kind = "misplaced record" // a valid record does not continue the log
	LostRecord      Kind = "lost record"      // the vote file knows of a record that is not there
	BadSegment      Kind = "bad segment"      // header or size of a log file
	LostSegment     Kind = "lost segment"     // a log file is missing
	LostEntries     Kind = "lost entries"     // entries are neither in the log nor in a snapshot
	BadSlot         Kind = "bad vote slot"    // one of two; the other one stands in
	LostVote        Kind = "lost vote"        // no slot is readable, or two votes in one term
	BadSnapshot     Kind = "bad snapshot"     // does not fit its checksum
	LostSnapshot    Kind = "lost snapshot"    // the log needs one and none is readable
	BadIdentity     Kind = "bad identity"     // unreadable, or missing beside files that need it
	WrongState      Kind = "wrong state"      // see Doubt
	Unfinished      Kind = "unfinished"       // Found was cut short
	Leftover        Kind = "leftover"         // of an operation that a crash cut short
)

// Finding is something that Open or Verify noticed.
type Finding struct {
	File   string // base name
	Offset int64  // in bytes
	Kind   Kind
	// Damage: something durable is lost. Without it the finding is what a crash
	// may leave behind, or has a second copy.
	Damage bool
	Detail string
}

func (f Finding) String() string {
	level := "note"
	if f.Damage {
		level = "DAMAGE"
	}
	return fmt.Sprintf("%s: %s in %s at byte %d: %s", level, f.Kind, f.File, f.Offset, f.Detail)
}

// err is what an opening of dir returns for damage.
func (f Finding) err(dir string) error {
	e := &Error{Op: "open", File: filepath.Join(dir, f.File), Offset: f.Offset}
	if f.Kind == Unfinished {
		e.Err, e.Advice = fmt.Errorf("%w: %s", ErrUnfinished, f.Detail), adviseAgain
		return e
	}
	e.Err, e.Advice = fmt.Errorf("%w: %s: %s", ErrDamaged, f.Kind, f.Detail), adviseDamaged
	return e
}

// findings collects; once there is damage in the log, reading it stops.
type findings []Finding

func (f *findings) damage(file string, off int64, k Kind, format string, args ...any) {
	*f = append(*f, Finding{file, off, k, true, fmt.Sprintf(format, args...)})
}

func (f *findings) note(file string, off int64, k Kind, format string, args ...any) {
	*f = append(*f, Finding{file, off, k, false, fmt.Sprintf(format, args...)})
}

// worst returns the first damage.
func (f findings) worst() (Finding, bool) {
	for _, x := range f {
		if x.Damage {
			return x, true
		}
	}
	return Finding{}, false
}
