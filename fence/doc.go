// Package fence lets a storage refuse writers that have lost their lock: it is the
// other side of the token that every Holdfast grant carries. Give the token to
// whatever you write to, and check it there, together with the write:
//
//	var gate fence.Gate // in the storage process
//
//	err := gate.Do(ctx, "accounts/7", token, fence.Exclusive, func(ctx context.Context) error {
//		return save(ctx) // no older holder can write any more
//	})
//	if errors.Is(err, driver.ErrStale) {
//		// the caller's lock was lost; a newer holder has been here
//	}
//
// # Why a lock alone is not enough
//
// A holder can stop between its last look at the lock and its write, for as long
// as a garbage collection, a swapped-out machine or a slow network likes:
//
//	time   A                           B                        storage
//	 1     is granted the lock, 100
//	 2     stops, ready to write
//	 3                                 A's session expires;
//	                                   B is granted it, 101
//	 4                                 writes x with 101        remembers 101
//	 5     goes on, writes y with 100                           100 < 101: refused
//
// Nothing that A could have asked at time 2 prevents the write at time 5: also
// "is my hold still good?" is answered before the stop. Only the storage sees
// the two writes in their order, so the storage has to decide.
//
// # The rule
//
// Tokens of one resource grow with every grant. A gate remembers the newest
// exclusive and the newest shared token that it let pass. It lets pass
//
//   - a shared token that is not older than the newest exclusive one: of two
//     readers that hold a lock together, the elder is as good as the younger;
//   - an exclusive token that is not older than the newest exclusive one and
//     newer than the newest shared one: a reader was granted the lock, so every
//     earlier writer has lost it, even if no later writer was seen.
//
// The same token passes as often as its holder likes; with Strict only once.
// What is refused changes nothing. A refusal is a [*driver.Error] of kind
// driver.ErrStale with a [*Refusal] inside.
//
// # Which gate
//
//	the storage is                        use
//	one process, state in memory          Gate: forgets at restart, like the state it guards
//	files of one machine                  Dir: survives restarts and power loss, many processes
//	PostgreSQL or SQLite                  Exec or Tx: check and write in one transaction
//	behind HTTP                           Handler on a Gate or Dir; Transport in the client
//
// A gate must live as long as what it guards. A [Gate] before a disk that
// outlives it accepts stale tokens after a restart: use [Dir] there.
//
// # Semaphores have no gate
//
// A semaphore has many holders at a time, and any of them may stay while others
// come and go: an older token says nothing about whether its hold has ended. The
// tokens of a semaphore identify holders and do not order them. Only the backend
// that grants them can tell whether one is still good; ask it. A gate cannot know what kind
// of lock a token comes from, so do not give it a semaphore's.
package fence
