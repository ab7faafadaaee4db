package storage

import (
	"errors"
	"io"
)

// A backup is a snapshot file outside of its directory: the same bytes, so that
// a snapshot file which was copied by hand serves as one too.

// OpenBackup opens a backup of whichever cluster; Close it. A file that is cut
// off, of a newer version or no backup at all is refused here, damage behind the
// header by the end of reading.
func OpenBackup(fsys FS, path string) (*SnapshotReader, error) {
	f, err := fsys.OpenRead(path)
	if err != nil {
		return nil, failed("open backup", path, err, "name a readable file that was saved as a backup")
	}
	r, err := readSnap(f, path)
	if err != nil {
		f.Close()
		return nil, failed("open backup", path, err, adviceFor(err))
	}
	r.advice = adviseBackup
	return r, nil
}

func adviceFor(err error) string {
	if errors.Is(err, ErrVersion) {
		return adviseVersion
	}
	return adviseBackup
}

// Cluster is the cluster that the snapshot is of, Group the raft group.
func (r *SnapshotReader) Cluster() uint64 { return r.head.cluster }

// Group is the raft group that the snapshot is of.
func (r *SnapshotReader) Group() uint64 { return r.head.group }

// Save writes the whole snapshot to w, as a backup. Nothing may have been read
// before. Without an error all of it was written and its checksum is right.
func (r *SnapshotReader) Save(w io.Writer) error {
	if r.off != 0 {
		return invalid("save", "%d bytes of the snapshot have been read already", r.off)
	}
	for _, b := range [][]byte{r.head.encode(len(r.head.meta.Conf)), r.head.meta.Conf} {
		if _, err := w.Write(b); err != nil {
			return failed("save", r.path, err, "mend what the backup is written to, then take it again")
		}
	}
	_, err := io.Copy(w, r)
	return err
}
