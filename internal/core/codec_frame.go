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
func DecodeFrame(b []byte, f *Frame) error {
	r := open(b, tagFrame)
	if len(b) > MaxFrame {
		r.fail("frame longer than 1 MiB")
	}
	f.Session = r.id()
	f.Attempt = r.uvarint()
	f.Mark = r.uvarint()
	f.Commands = f.Commands[:0]
	for range r.count() {
		f.Commands = grow(f.Commands)
		r.command(&f.Commands[len(f.Commands)-1])
		if r.err != nil {
			break
		}
	}
	return r.end()
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

// DecodeEntry decodes all of b into e, using e's slices again. The frames alias
// b and are not decoded themselves.
func DecodeEntry(b []byte, e *Entry) error {
	r := reader{b: b, i: 2}
	if e.Version = VersionOf(b); len(b) < 2 || e.Version == 0 || e.Version > EntryVersion || b[1] != tagEntry {
		r = unopened(b, tagEntry, EntryVersion)
	}
	e.Kind = EntryKind(r.enum(byte(EntryQuota), "entry kind"))
	e.Now = r.duration()
	e.Seconds = r.duration()
	e.Quota = Quota{}
	if e.Kind == EntryQuota {
		for _, n := range e.Quota.fieldsOf(e.Version) {
			*n = r.size()
		}
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
	if e.Kind != EntryCommands && r.err == nil && len(e.Renewals)+len(e.Frames) > 0 {
		r.fail("an entry of this kind carries nothing")
	}
	if !e.dated() && r.err == nil && e.Seconds != 0 {
		r.fail("seconds in an entry that has no use for them")
	}
	return r.end()
}
