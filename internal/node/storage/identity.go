package storage

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
)

const (
	identityName  = "identity"
	identitySize  = 64
	identityMagic = "HFI1"
	lockName      = "LOCK"
)

// identity says which node's directory it is. It is written last when a directory is
// made: without it nothing in the directory has ever been promised.
type identity struct {
	cluster, node, salt uint64
	former              uint64 // the number that it was made for; 0: its own
}

func encodeIdentity(id identity) []byte {
	b := make([]byte, identitySize)
	copy(b[4:], identityMagic)
	b[8] = id.version()
	le.PutUint64(b[16:], id.cluster)
	le.PutUint64(b[24:], id.node)
	le.PutUint64(b[32:], id.salt)
	le.PutUint64(b[40:], id.former)
	le.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

// version is the format that an identity needs: only a number that was given later
// is unknown to version 1.
func (id identity) version() byte {
	if id.former != 0 {
		return formatVersion + 1
	}
	return formatVersion
}

func decodeIdentity(b []byte) (identity, error) {
	if len(b) != identitySize || string(b[4:8]) != identityMagic {
		return identity{}, fmt.Errorf("%w: not an identity file", ErrDamaged)
	}
	if le.Uint32(b) != crc32.Checksum(b[4:], castagnoli) {
		return identity{}, fmt.Errorf("%w: checksum of the identity file", ErrDamaged)
	}
	if b[8] != formatVersion && b[8] != formatVersion+1 {
		return identity{}, fmt.Errorf("%w: format %d, this program knows %d", ErrVersion, b[8], formatVersion)
	}
	id := identity{le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:]), le.Uint64(b[40:])}
	return id, exact(b, encodeIdentity(id))
}

// exact refuses bytes with a valid checksum that this version would not write.
func exact(got, want []byte) error {
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%w: reserved bytes are set", ErrDamaged)
	}
	return nil
}

// directory tells this directory from every other that was ever made, also for the
// same node. It is derived from the salt, which nobody else may know.
func (id identity) directory() uint64 {
	b := []byte("holdfast directory")
	for _, v := range []uint64{id.cluster, id.node, id.salt} {
		b = le.AppendUint64(b, v)
	}
	sum := sha256.Sum256(b)
	return max(1, le.Uint64(sum[:])>>1)
}

// matches refuses a directory that is not the one the caller thinks it is.
func (id identity) matches(o Options) error {
	if id.cluster != o.ClusterID {
		return fmt.Errorf("%w: cluster %d, this node is of cluster %d", ErrForeign, id.cluster, o.ClusterID)
	}
	if id.node != o.NodeID {
		return fmt.Errorf("%w: node %x, this is node %x", ErrForeign, id.node, o.NodeID)
	}
	return nil
}
