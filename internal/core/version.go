package core

// EntryVersion is the newest version of entries that this program knows, and with it
// of the rules by which one is applied. Bytes and rules are two things: what stands in
// a log was answered when it was applied first, and has to come out the same when it
// is applied again. So whatever changes the outcome of an entry, a new bound too, is
// for entries from some version on, and those of before keep their rules:
//
//	1  no bounds but those of Config
//	2  no command does more than the budget: see Config.Budget
//	3  a snapshot tells the version of its machine; a hold that is lost and keeps its
//	   names for a while lets the stale ones beside it be reclaimed at once; there are
//	   limiters, a quota of their keys, and the date of an entry
//	4  while nothing is granted, a request that may wait is queued, and only a try fails
//	5  a session past its deadline that its policy keeps is granted nothing until it is
//	   renewed; a re-entrant request joins the oldest hold; the quota of holds counts an upgrade that waits, and not the shared claim
//	   under one that is granted; that of keys counts what a transaction leaves; a session is revoked
//	   in its own name, without a number
//	6  the revision is raised where a state check has given up the state of a node; the cancel of an
//	   upgrade that was revoked leaves its holder the shared claim, revoked
const EntryVersion = 6

// BaseVersion is that of a new machine, and of one from a snapshot that does not tell. It
// is the least that this program writes.
const BaseVersion = 2

// OpSince says from which version on there is an op; what is not listed is of
// BaseVersion or before. A new op is one line here, a new field one in since. It changes only in tests.
var OpSince = [256]uint8{OpLimit: 3}

// Since is the least version of an entry in which the frame can stand.
func (f *Frame) Since() (version uint8) {
	for i := range f.Commands {
		version = max(version, f.Commands[i].since())
	}
	return version
}

func (c *Command) since() uint8 {
	version := OpSince[c.Op]
	if c.Kind == Limiter || c.Ask != nil {
		version = max(version, 3)
	}
	if c.Op == OpRevoke && c.Seq == 0 {
		version = max(version, 5)
	}
	return version
}

// Version is the machine's: the greatest that an entry brought. Its snapshots are
// written in it.
func (m *Machine) Version() uint8 { return m.version }

// VersionOf is the version of an encoded entry, known or not; 0: it is none.
func VersionOf(entry []byte) uint8 {
	if len(entry) == 0 {
		return 0
	}
	return entry[0]
}
