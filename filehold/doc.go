// Package filehold keeps a Space in a directory: processes of one machine that
// open it take turns, count together and see each other's keys, with nothing to
// install and nothing to ask but the kernel.
//
//	s, err := filehold.Open("/var/lock/app")
//	defer s.Close()
//
// or holdfast.Open(ctx, "file:///var/lock/app"). The directory is made if its
// parent exists; a path with a mistake higher up is an error, not a second
// directory. It has to be on a local file system.
//
// A mutex or reader-writer lock is one lock file, flocked by its holder:
// [FileName] tells which, so that flock(1) and other programs can take part.
// Everything else is a log in the directory .holdfast, which every process
// applies to a machine of its own: one writes at a time, all read. Counters,
// sequences, latches and keys are on disk before the call that changes them
// returns; when the disk has refused once, the log is written anew before anything
// else is said to be there. A waiter is woken by the kernel: by the flock itself, by a bell that
// rings in the process that has the claim, or in all if any watches, or by the
// end of a pipe that every process keeps open as long as it runs.
//
// # Several users
//
// What a program makes in a directory is its user's, with what the umask leaves.
// For users that share it, the first opens it with a mode:
//
//	holdfast.Open(ctx, "file:///var/lock/app?mode=0660")
//
// Then all of it is readable and writable for the group of the directory, and has
// the setgid bit, so that whatever anybody makes in it later is of that group; the
// umask plays no part. 0666 is for everybody, 0600 for one user. Later users need
// not name the mode: it is that of the control file, and another one is refused. If
// the group is not the first one of the maker's, make the directory by hand (mkdir,
// chgrp, chmod 2770) and open it then.
//
// # What the kernel does
//
// The kernel is the liveness. A hold ends when its holder gives it back or its
// process ends, however it ends; a process that is stopped goes on holding.
// Nobody can be granted what another still believes to hold, which is the
// promise "lost-first". TTLs are taken and ignored: a session is a process, and
// ends with it or by Revoke. The clock of keys that expire is the kernel's time
// since boot, sleep included; after a restart of the machine their time begins
// anew where it stood.
//
// Tokens of mutexes and reader-writer locks are counted together for the whole directory, those of
// semaphores, elections, latches and barriers are revisions of its log: of each name they only grow, also when it
// becomes another kind, but one of each count may be the same number. They grow although lock files are
// deleted, although the process that drew the last one was killed, and although
// the power fails: a ceiling is on disk before any token below it is given, and
// the next boot begins above it. A directory that was removed and made anew
// begins above the old one's tokens too.
//
// A directory that is removed or replaced under a program that waits there, or of which the control file
// is, ends for that program: within a second or so its holds are lost and its waits and watches end, with an error that is
// ErrClosed and ErrUnavailable. Every other call is refused with it at once. It has to open the directory anew.
// What it has lost is free in a directory that was moved: in its new place, and when it is back.
//
// # What it cannot promise
//
//	promise                        | here
//	-------------------------------|------------------------------------------------------------------
//	several machines               | no; one machine, and containers on it that share the directory
//	FIFO over processes            | semaphores, elections, latches and barriers only. Lock files are
//	                               | served in order within a process; between processes the kernel
//	                               | decides, and readers may keep the writer of another process waiting
//	upgrade, force, max-hold,      | no: the kernel frees a lock file only with its holder
//	min-hold, delay                |
//	AcquireAll in one step         | no; one name after the other, in order of name
//	a watch from an earlier        | no; from now on
//	revision                       |
//	lost-first if somebody deletes | no: a lock file that is removed under its holder keeps nobody out;
//	files by hand                  | the next locks the file that has the name then. Fencing still holds:
//	                               | its token is greater
//	a read is on disk              | a value can be read by others in the moment before its writer is
//	                               | answered, while it is on its way to the disk
//	a name is free to be of        | a name that was once a lock keeps its file, and stays a lock until
//	another kind                   | the file is swept
//	a stopped process stops nobody | one that is stopped just while it writes the log stops all that
//	                               | write it, until it goes on or is killed; locks that are free can
//	                               | still be taken
//	cancelled waits leave nothing  | a thread goes on waiting in the kernel for a lock file that nobody
//	                               | here wants any more, and gives it back when it gets it
//
// At most 2,000 lock files can be waited for in one process at a time. Up to 64
// that were given back stay open. A process that waits for anything but a lock
// file takes one inotify instance (fs.inotify.max_user_instances).
//
// # What is left behind
//
// A lock file stays when nobody holds it: an empty file a name. Sweep removes those
// (holdfast sweep, or the driver's method), beside programs that use them: a program that locks
// a file compares it with the one that has the name then. A program that does not,
// such as flock(1), must not lock while a sweep runs. Tokens go on growing, also
// when the name becomes something else.
package filehold
