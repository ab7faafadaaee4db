// Package storage lets a replica keep its raft log, its vote and its snapshots
// so that nothing it has acknowledged is ever lost or changed unnoticed.
//
//	store, recovered, err := storage.Open(storage.OS{}, "/var/lib/holdfast", storage.Options{ClusterID: 7, NodeID: 1})
//	err = store.Append(storage.Batch{HardState: hs, Entries: entries}) // durable when it returns
//	ents, err := store.Entries(first, last+1, 1<<20)
//
// The promises, each with a test that tries to break it:
//
//   - What [Store.Append], [Store.SaveVote], [Store.CreateSnapshot] and
//     [Store.InstallSnapshot] have returned for survives kill -9 and power loss.
//   - An ordinary crash is never taken for damage: what was being written is
//     either there as a whole or not at all.
//   - A flipped bit is either harmless or reported as [ErrDamaged] with file and
//     offset. The one limit: in the very last record, as long as neither a later
//     record nor the vote file vouches for it, a flip looks like a torn write.
//     [Store.Mark] and [Store.Close] vouch for it.
//   - After any failed write or sync the store answers every call with that
//     error. It never tries again on the same descriptor: a kernel may have
//     dropped the very pages it failed to write.
//
// The logic starts no goroutine and reads no clock and no random source; all
// input and output goes through [FS], so that a simulator runs this very code
// (see package simdisk). The bytes on disk are described in docs/storage.md.
package storage
