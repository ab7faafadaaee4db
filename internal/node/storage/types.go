package storage

// Entry is one entry of the raft log. The store keeps Data as given: it must not
// change after Append.
type Entry struct {
	Index, Term uint64
	Type        uint8
	Data        []byte
}

// HardState is what a raft node must remember. All zero means "nothing to say".
type HardState struct {
	Term, Vote, Commit uint64
}

// Point is a place in the log.
type Point struct {
	Index, Term uint64
}

// Batch is what one Append makes durable, all or nothing.
type Batch struct {
	// HardState replaces the one before; the zero value keeps it. Term and
	// Commit never go back, and a vote is never changed within a term.
	HardState HardState
	// Entries follow each other without a gap. If the first one's index is
	// already in the log, everything from there on is replaced.
	Entries []Entry
}

// SnapshotMeta says what a snapshot holds: the state after applying Index.
type SnapshotMeta struct {
	Index, Term uint64
	// Conf is the membership at Index in the caller's own encoding, at most
	// 1 MiB.
	Conf []byte
}

// Point returns the place in the log that the snapshot stands for.
func (m SnapshotMeta) Point() Point { return Point{m.Index, m.Term} }

// Options say which node's directory it is, and how to use it.
type Options struct {
	// ClusterID and NodeID are written into a new directory and must match in an
	// old one. Neither may be 0.
	ClusterID, NodeID uint64
	// Group is the raft group that this log is of.
	Group uint64
	// Salt is mixed into every checksum of a new directory, so that bytes which
	// a client put into an entry can never pass for a record of the log. Draw it
	// from crypto/rand, or from the seed in a simulation. An old directory keeps
	// the salt it was made with.
	Salt uint64
	// SegmentSize is the size in bytes of one preallocated log file: default
	// 16 MiB, at least 4 KiB. Compaction frees whole files.
	SegmentSize int64
	// CacheBytes bounds the memory for entries that lookups find without reading
	// the disk, the newest ones. Default 16 MiB; 1 keeps none.
	CacheBytes int64
	// SoftLimit in bytes makes Full true once the files take as much; 0 = never.
	SoftLimit int64
	// Reserve makes Full true while the file system has fewer free bytes than these
	// and another snapshot like the newest take; 0 = never. Segments that are kept to be
	// used again count as free, up to half of it. It needs an FS that is a [Space].
	Reserve int64
}

// DefaultReserve is the Reserve of a node that is told nothing else.
const DefaultReserve = 64 << 20

const (
	defaultSegment = 16 << 20
	minSegment     = 4 << 10
	defaultCache   = 16 << 20
)

// filled checks the options and puts the defaults in.
func (o Options) filled() (Options, error) {
	if o.ClusterID == 0 || o.NodeID == 0 {
		return o, invalid("open", "ClusterID and NodeID must not be 0")
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = defaultSegment
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCache
	}
	if o.SegmentSize < minSegment || o.CacheBytes < 0 || o.SoftLimit < 0 || o.Reserve < 0 {
		return o, invalid("open", "SegmentSize %d (at least %d), CacheBytes %d, SoftLimit %d, Reserve %d",
			o.SegmentSize, minSegment, o.CacheBytes, o.SoftLimit, o.Reserve)
	}
	o.SegmentSize = align(o.SegmentSize)
	return o, nil
}

// Recovered is what Open found.
type Recovered struct {
	// Fresh: the directory was empty. A node that has taken part before must not
	// go on with a fresh one: it has forgotten its votes.
	Fresh bool
	// HardState to start raft with. Commit may lag behind what had been
	// committed, never behind the snapshot.
	HardState HardState
	// Snapshot is the newest readable one, zero if there is none. Read it with
	// OpenSnapshot, then apply the entries after it.
	Snapshot SnapshotMeta
	// First and Last bound the entries in the log; First is Last+1 if there are
	// none.
	First, Last uint64
	// Doubted: the state was found to be wrong, and no other has come since; see Doubt.
	Doubted bool
	// Copied: the directory is a copy of another, or was moved here; nil: it is where it was, as
	// far as is known. See Settle.
	Copied *Copied
	// Findings are oddities that were put right, such as a torn tail.
	Findings []Finding
}
