package core

import "encoding/binary"

// AppendFrame appends the encoding of f to dst.
func AppendFrame(dst []byte, f *Frame) []byte {
	dst = header(dst, tagFrame)
	dst = append(dst, f.Session[:]...)
	dst = binary.AppendUvarint(dst, f.Attempt)
	dst = binary.AppendUvarint(dst, f.Mark)
	dst = binary.AppendUvarint(dst, uint64(len(f.Commands)))
	for i := range f.Commands {
		dst = appendCommand(dst, &f.Commands[i])
	}
	return dst
}

// DecodeFrame decodes all of b into f, using f's slices again. Strings and byte
// slices of f alias b. There is exactly one encoding of a frame: what decodes
// encodes to the same bytes. On error f has no meaning.
//
// It is for frames of a log, which were taken whatever they have become since; for all
// others there is [DecodeNew].
func DecodeFrame(b []byte, f *Frame) error {
	r := open(b, tagFrame)
	return r.frame(f)
}

// DecodeNew is DecodeFrame for a frame that is not in a log yet: one of more than
// MaxParts is ErrParts before there is room made for them. Of such a frame f has the
// session, the attempt and the mark.
func DecodeNew(b []byte, f *Frame) error {
	r := open(b, tagFrame)
	r.bounded, r.left = true, MaxParts
	return r.frame(f)
}

func (r *reader) frame(f *Frame) error {
	if len(r.b) > MaxFrame {
		r.fail("frame longer than 1 MiB")
	}
	f.Session = r.id()
	f.Attempt = r.uvarint()
	f.Mark = r.uvarint()
	f.trim()
	for range r.parts() {
		f.Commands = grow(f.Commands)
		r.command(&f.Commands[len(f.Commands)-1])
		if r.err != nil {
			break
		}
	}
	return r.end()
}

// How much room a frame keeps for the next one that is decoded into it.
const (
	keptCommands = 1024
	keptParts    = 16
)

// trim empties f and keeps the room of its lists, but of long ones: each command has its own,
// so that a few long ones after each other would fill the room of all.
func (f *Frame) trim() {
	for i := range f.Commands {
		c := &f.Commands[i]
		c.Wants, c.If, c.Then, c.Else = short(c.Wants), short(c.If), short(c.Then), short(c.Else)
	}
	if f.Commands = f.Commands[:0]; cap(f.Commands) > keptCommands {
		f.Commands = nil
	}
}

func short[T any](list []T) []T {
	if cap(list) > keptParts {
		return nil
	}
	return list
}

// AppendEntry appends the encoding of e to dst; the frames go in as they are.
func AppendEntry(dst []byte, e *Entry) []byte {
	version := e.Version
	if version == 0 {
		version = EntryVersion
	}
	dst = append(dst, version, tagEntry, byte(e.Kind))
	dst = binary.AppendUvarint(dst, uint64(e.Now))
	dst = binary.AppendUvarint(dst, uint64(e.Seconds))
	if e.Kind == EntryQuota {
		for _, n := range e.Quota.fieldsOf(version) {
			dst = binary.AppendUvarint(dst, uint64(*n))
		}
	}
	if e.Kind == EntryRaise {
		dst = binary.AppendUvarint(dst, e.Revision)
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.Renewals)))
	for i := range e.Renewals {
		n := &e.Renewals[i]
		dst = append(dst, n.Session[:]...)
		dst = binary.AppendUvarint(dst, n.Attempt)
		dst = binary.AppendUvarint(dst, uint64(n.TTL))
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.Frames)))
	for _, f := range e.Frames {
		dst = appendString(dst, f)
	}
	return dst
}

// dated reports whether an entry can tell the date.
func (e *Entry) dated() bool {
	return e.Kind == EntryForget || e.Kind == EntryCommands && e.Version >= 3
}

// newestKind is the last kind of entries of a version.
func newestKind(version uint8) EntryKind {
	if version < 6 {
		return EntryQuota
	}
	return EntryRaise
}

// DecodeEntry decodes all of b into e, using e's slices again. The frames alias
// b and are not decoded themselves.
func DecodeEntry(b []byte, e *Entry) error {
	r := reader{b: b, i: 2}
	if e.Version = VersionOf(b); len(b) < 2 || e.Version == 0 || e.Version > EntryVersion || b[1] != tagEntry {
		r = unopened(b, tagEntry, EntryVersion)
	}
	e.Kind = EntryKind(r.enum(byte(newestKind(e.Version)), "entry kind"))
	e.Now = r.duration()
	e.Seconds = r.duration()
	e.Quota = Quota{}
	if e.Kind == EntryQuota {
		for _, n := range e.Quota.fieldsOf(e.Version) {
			*n = r.size()
		}
	}
	if e.Revision = 0; e.Kind == EntryRaise {
		e.Revision = r.uvarint()
	}
	e.Renewals, e.Frames = e.Renewals[:0], e.Frames[:0]
	for range r.count() {
		e.Renewals = append(e.Renewals, Renewal{Session: r.id(), Attempt: r.uvarint(), TTL: r.duration()})
		if r.err != nil {
			break
		}
	}
	for range r.count() {
		e.Frames = append(e.Frames, r.span())
		if r.err != nil {
			break
		}
	}
	if e.Now > maxNow || e.Seconds > maxSeconds {
		r.fail("time out of range")
	}
	if e.Revision >= MaxRevision {
		r.fail("revision out of range")
	}
	if e.Kind != EntryCommands && r.err == nil && len(e.Renewals)+len(e.Frames) > 0 {
		r.fail("an entry of this kind carries nothing")
	}
	if !e.dated() && r.err == nil && e.Seconds != 0 {
		r.fail("seconds in an entry that has no use for them")
	}
	return r.end()
}
