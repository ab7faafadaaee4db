package storage

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// image is what a directory holds, as far as it can be read. Building one
// changes nothing on disk: Open mends only an image without damage, and Verify
// reports it.
type image struct {
	fs    FS
	dir   string
	names []string // all files
	id    identity
	group uint64

	slots  [2]bool // which ones are readable
	ballot ballot  // the newest readable one

	idx   index
	segs  []*segment
	tail  int64 // in the last segment: where the next record goes
	final span  // the last record, if it is in the last segment

	snaps     []snapFile // newest first
	leftovers []string
	spares    []spareFile
	found     findings
}

// readAll reads a whole file.
func (m *image) readAll(name string) ([]byte, error) {
	path := filepath.Join(m.dir, name)
	f, err := m.fs.OpenRead(path)
	if err != nil {
		return nil, failed("open", path, err, adviseAccess)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, failed("read", path, err, adviseAccess)
	}
	b := make([]byte, size)
	if err := readFull(f, b, 0); err != nil {
		return nil, failed("read", path, err, adviseAccess)
	}
	return b, nil
}

// readFull fills b from offset off; a file that ends early is an error.
func readFull(f File, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w at byte %d", io.ErrUnexpectedEOF, off+int64(n))
	}
	return err
}

// numbered returns the numbers in names of the form prefix + 16 hex digits,
// ascending.
func numbered(names []string, prefix string) []uint64 {
	var nos []uint64
	for _, name := range names {
		hex, ok := strings.CutPrefix(name, prefix)
		if !ok || len(hex) != 16 {
			continue
		}
		if no, err := strconv.ParseUint(hex, 16, 64); err == nil && hex == strings.ToLower(hex) {
			nos = append(nos, no)
		}
	}
	slices.Sort(nos)
	return nos
}

// loadIdentity reads which node's directory it is. All checksums depend on it.
func (m *image) loadIdentity() error {
	b, err := m.readAll(identityName)
	if err != nil {
		return err
	}
	m.id, err = decodeIdentity(b)
	if errors.Is(err, ErrVersion) {
		return failed("open", filepath.Join(m.dir, identityName), err, adviseVersion)
	}
	if err != nil {
		m.found.damage(identityName, 0, BadIdentity, "%v", err)
	}
	return nil
}

// load reads everything behind a readable identity. The error is one of the file
// system or of versions; damage is among the findings.
func (m *image) load(everySnapshot bool) error {
	if err := m.loadVotes(); err != nil {
		return err
	}
	if err := m.loadLog(); err != nil {
		return err
	}
	m.listSpares()
	if slices.Contains(m.names, doubtName) {
		m.found.note(doubtName, 0, WrongState, "a check has found that this node differs from the majority of its group: go on with the directory of another, if one is left")
	}
	return m.loadSnapshots(everySnapshot)
}

func (m *image) loadVotes() error {
	if !slices.Contains(m.names, voteName) {
		m.found.damage(voteName, 0, LostVote, "the file is missing")
		return nil
	}
	b, err := m.readAll(voteName)
	if err != nil {
		return err
	}
	for slot := range 2 {
		part := b[min(slotOffset(slot), int64(len(b))):]
		v, err := decodeSlot(part, slot, m.id.salt)
		if errors.Is(err, ErrVersion) {
			return failed("open", filepath.Join(m.dir, voteName), err, adviseVersion)
		}
		m.slots[slot] = err == nil
		if err == nil && v.counter > m.ballot.counter {
			m.ballot = v
		}
	}
	m.judgeSlots()
	return nil
}

func (m *image) judgeSlots() {
	if !m.slots[0] && !m.slots[1] {
		m.found.damage(voteName, 0, LostVote, "neither slot is readable: this node may have voted and does not know for which node")
		return
	}
	for slot, ok := range m.slots {
		if !ok {
			m.found.note(voteName, slotOffset(slot), BadSlot, "slot %d is torn or flipped, the other one carries the vote", slot)
		}
	}
}

func (m *image) listSpares() {
	for _, no := range numbered(m.names, "spare-") {
		m.spares = append(m.spares, spareFile{name: spareName(no)})
	}
	for _, name := range m.names {
		if isTemp(name) {
			m.leftovers = append(m.leftovers, name)
		}
	}
}

// err turns the first damage into the error that Open returns.
func (m *image) err() error {
	f, bad := m.found.worst()
	if !bad {
		return nil
	}
	return f.err(m.dir)
}

// close lets go of the segments.
func (m *image) close() {
	for _, s := range m.segs {
		s.file.Close()
	}
}
