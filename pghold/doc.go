// Package pghold keeps a Space in PostgreSQL (13 or later): locks, semaphores,
// elections, counters, sequences, keys and watches for programs on many
// machines that share a database already.
//
//	import _ "github.com/holdfast-io/holdfast/pghold"
//	s, err := holdfast.Open(ctx, "postgres://user@host/database")
//
// or, with a pool of your own, which is never closed:
//
//	d, err := pghold.New(pool, nil)
//	s, err := holdfast.New(d)
//
// [LockTx] takes a lock for the rest of a transaction of yours.
//
// # Locks
//
// Mutexes and reader-writer locks are advisory locks of PostgreSQL, under the keys
// of [ParseKey]: programs in other languages that use these rules, or the keys
// themselves, take part. The lock decides; rows in the schema "holdfast", which is
// made on first use, only describe who holds and who waits. Semaphores, elections,
// latches, barriers, counters and keys are rows; see [Schema] and [Grants].
//
// Locks that are free are all held on one connection. Each takes a place in the
// server's table of locks, which has room for about max_locks_per_transaction ×
// (max_connections + max_prepared_transactions) locks of all programs, 6,400 with
// PostgreSQL's defaults, and somewhat more in practice; raise
// max_locks_per_transaction for more. An acquire that finds the table full is
// refused with ErrUnavailable and ends nothing else, but other programs on the
// server may fail for lack of a place meanwhile.
//
// A wait has a connection of its own in PostgreSQL's queue and keeps it for as long
// as the lock is held; [Options].Waits bounds them. Waits beyond it queue in the
// program: they get the connection of the next hold of the same name that is given
// back, and ask every 25 ms. Connections for waits that are idle are closed after
// 10 s. Cancelling a wait costs no connection. Every connection also holds one
// advisory lock with a random bigint key, by which others see that it is alive, and
// the home connection one more while somebody watches.
//
// A hold is described 5 to 10 ms after its grant, a wait after 100 ms, or before
// OnWait is called. Inspect, ErrHeld and ForceRelease wait until what is held has
// been described, for a second at most: a program that was stopped within 10 ms of a
// grant is told of as "PostgreSQL process", and cannot be forced.
//
// # Scopes
//
// Through PgBouncer with transaction pooling a session's locks do not work, and
// are refused. Use TransactionScope there (holdfast_scope=transaction in the
// URL): every lock then has a transaction, and a connection, of its own, as many
// as Options.Waits; semaphores and elections are looked at every 50 ms; ForceRelease
// and watches are not available.
//
// # URLs
//
// postgres: and postgresql: URLs are those of PostgreSQL, with these parameters
// of ours: holdfast_scope (session, transaction), holdfast_hashing (true, false),
// holdfast_keepalive and holdfast_timeout (5s), holdfast_waits (8). The default
// isolation of the connections has to be PostgreSQL's own, read committed, and the
// database's encoding UTF8.
//
// # What it does not promise
//
//	lost-first            no. A killed server process frees its locks at once, and the holder learns of it
//	                      some milliseconds later (within 50 ms on a machine that is not overloaded).
//	                      If it had a lock for 10 ms or longer, the next one is granted 50 ms later. Of
//	                      shorter holds, of readers after the first who follow a writer, of semaphores
//	                      and of elections only the token protects.
//	a silent cut          the holder knows after at most Keepalive + Timeout, 10 s by default; the server
//	                      frees the locks after about 25 s (TCP keepalive), so the holder knows first.
//	a stopped server      the holder knows after Keepalive + Timeout; nobody is granted meanwhile.
//	a stopped holder      keeps its locks as long as its machine answers the server's TCP keepalive, like
//	                      a hung program that holds a database transaction. ForceRelease with Now ends it.
//	TTL                   ignored: a hold, a session and its keys live as long as their connection.
//	FIFO                  no. PostgreSQL serves waits for locks in the order in which they came, but a wait
//	                      that has lasted 10 s is begun anew, behind the others, and waits beyond
//	                      Options.Waits join it when they get a connection. Semaphores and elections keep
//	                      the order of arrival for every wait.
//	a dead semaphore      what a program that died held of a semaphore, or an election, is free for waiters
//	                      half a second later at the latest.
//	one name, two kinds   a mutex and a reader-writer lock of one name exclude each other; the second one
//	                      gets ErrConflict from a try, or after 100 ms of waiting. Elections are no
//	                      advisory locks: other programs do not see them.
//	AcquireAll            one name after the other, in order of key; not in one step.
//	deadlock              is not detected between holds; take several names in one AcquireAll. Between
//	                      transactions with LockTx PostgreSQL does, and it is ErrConflict.
//	counters              Counter.Add is one UPDATE; if it is not answered it may have counted, as the
//	                      error's outcome says.
//	durable               keys, counters, sequences, latches and limits survive a restart of the server;
//	                      holds, sessions and their keys end with it. Tokens go on, also after a crash.
//	watch                 from now on, not from earlier revisions; events of keys, locks, semaphores,
//	                      elections and latches; a broken connection is a watch:resync. Keys that expire
//	                      are told within a second.
//	upgrade, resize,      no.
//	max-hold, min-hold,
//	delay
package pghold
