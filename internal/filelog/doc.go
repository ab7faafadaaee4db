// Package filelog lets processes of one machine share a log of records in a
// directory: one process appends at a time, every process applies all records in
// their order to a state of its own, and comes to the same state.
//
// The log is one file, a snapshot of the state followed by records. When it has
// grown, [Log.Compact] puts the next generation in its place: a new file that begins
// with a snapshot. Where the log ends, up to where it is on disk, and whether a
// replacement is under way stands in three words that all processes see at once
// ([Shared]); a record counts when the word End is behind it. A process that is
// killed at any point leaves bytes that do not count ([Log.Trim]) or a replacement
// that the next writer completes ([Log.Settle]).
//
// The caller has the lock between processes; the methods that write say so. After a
// restart of the machine [Log.Salvage] keeps what is whole: at least all that was
// answered as being on disk.
package filelog
