package filehold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/filelog"
)

// The words of the control file, which all processes have in their memory.
const (
	wMagic     = iota
	wBoot      // two words: which boot of the machine it was last used in
	_          //
	wNext      // the last token given
	wCeiling   // no token above it was ever given, on disk before it counts
	wCeilingN  // its complement: a damaged ceiling must not pass
	wOpen      // tokens up to here may be given: the ceiling that is on disk
	wRevisions // as wCeiling, for the revisions of the machine
	wRevisionN
	wEnd       // position up to which the log counts
	wDurable   // position up to which it is on disk
	wSwitching // 1: somebody is replacing the log
	wBase      // cluster time less BOOTTIME
	wWatchers  // how many watch: lock events are written if anybody does
	wSleepers  // processes that wait for the bell
	wVersion   // of what the directory has in it; 0: 1
	wSuspect   // generation of the log of which a sync has failed; 0: none
	words
)

const (
	controlSize  = 512
	controlMagic = 0x3165646c6f486c66 // "flHolde1"
)

// tokenBlock is how many tokens one sync of the ceiling is good for, and how
// many are skipped at most when the power fails.
const tokenBlock = 1 << 16

// revisionBlock does the same for revisions. No entry of the log takes more
// than half of it.
const revisionBlock = 1 << 15

// version is that of what this program writes into a directory. A program that
// knows less refuses it; one that knows more raises it when it opens it.
//
//	1  as it was before there was this word
//	2  entries of core's version 2, raised revisions
//	3  entries of core's version 3
//	4  entries of core's version 4
//	5  entries of core's version 5
//	6  entries of core's version 6
const version = 6

// newer is the error of a directory that a newer program has written, or has
// raised while this one used it.
func newer(path string, is, known uint64) error {
	return driver.Errorf("", path, errors.ErrUnsupported,
		"the directory is of version %d, and this program knows up to %d: update it; nothing was changed", is, known)
}

// isControl reports whether a file has the size and the beginning of a control file.
func isControl(b []byte) bool {
	return len(b) == controlSize && binary.NativeEndian.Uint64(b[8*wMagic:]) == controlMagic
}

// checkControl says what is wrong with the bytes of a control file.
func checkControl(b []byte) error {
	if len(b) != controlSize {
		return fmt.Errorf("it has %d bytes instead of %d", len(b), controlSize)
	}
	w := func(i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
	switch {
	case w(wMagic) != controlMagic:
		return fmt.Errorf("it does not begin as a control file of this version and byte order does")
	case w(wCeiling) != ^w(wCeilingN) || w(wRevisions) != ^w(wRevisionN):
		return fmt.Errorf("a ceiling and its complement do not agree")
	case w(wNext) > w(wCeiling) || w(wOpen) > w(wCeiling):
		return fmt.Errorf("the token %d is above the ceiling %d", max(w(wNext), w(wOpen)), w(wCeiling))
	case w(wCeiling) >= 1<<53 || w(wRevisions) >= 1<<53:
		return fmt.Errorf("a ceiling is not below 2⁵³")
	case w(wDurable) > w(wEnd) || filelog.Position(w(wEnd)).Generation() == 0:
		return fmt.Errorf("the log is said to be on disk up to %d, and to end at %d", w(wDurable), w(wEnd))
	}
	return nil
}

// newControl is the control file of a directory that is made at a time. Tokens begin where those of
// a directory that was wiped cannot have come to: 2²⁰ a second, about one a microsecond, which
// is more than can be granted.
func newControl(at time.Time, base int64) []byte {
	b := make([]byte, controlSize)
	put := func(i int, v uint64) { binary.NativeEndian.PutUint64(b[8*i:], v) }
	first := uint64(at.Unix())<<20 | uint64(at.Nanosecond())<<20/1e9
	put(wMagic, controlMagic)
	put(wNext, first)
	put(wOpen, first)
	put(wCeiling, first)
	put(wCeilingN, ^first)
	put(wRevisions, first)
	put(wRevisionN, ^first)
	put(wEnd, uint64(filelog.At(1, 0)))
	put(wBase, uint64(base))
	put(wVersion, version)
	return b
}
