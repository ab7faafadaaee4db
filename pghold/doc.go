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
// Mutexes, reader-writer locks and elections are advisory locks of PostgreSQL,
// under the keys of [ParseKey]: programs in other languages that use these rules,
// or the keys themselves, take part. What belongs to a lock beyond that (owner,
// token, place in the queue), semaphores, latches, barriers, counters and keys
// are rows in the schema "holdfast", which is made on first use, with a second one for
// functions, which has their version in its name; see [Schema] and [Grants].
//
// Locks that are free are all held on one connection. Each takes a place in the
// server's table of locks, which has room for about max_locks_per_transaction ×
// (max_connections + max_prepared_transactions) locks of all programs, 6,400 with
// PostgreSQL's defaults, and somewhat more in practice; raise
// max_locks_per_transaction for more. An acquire that finds the table full is
// refused with ErrUnavailable and ends nothing else, but other programs on the
// server may fail for lack of a place meanwhile. The
// first wait for a name in a process has a connection of its own, and the second one
// too while at most half of [Options].Waits are in use; it keeps it for as long as the
// lock is held. Options.Waits bounds them, and first waits beyond it ask every 25 ms.
// Those that are not needed are ended when they have been idle for Options.Keepalive,
// but for one. Cancelling a wait costs no connection: one that is being made for it is
// the next caller's, as are the schema and the connection for what is free. The server's log has
// an ERROR for a wait in the server that is cancelled. Every connection also
// holds one advisory lock with a random bigint key, by which others see that it
// is alive; one more for each name that its program waits for or uses as a
// semaphore, latch or barrier; one while it has quick grants (below); and 32 while
// it watches, or its program uses transaction scope.
//
// A mutex that was free the last time is taken without a row, which follows if it
// is still held 5 ms later: a caller of Inspect waits for that. It is so as long
// as nobody watches or waits for the name, and no program on the database uses
// TransactionScope.
//
// # Scopes
//
// Through PgBouncer with transaction pooling a session's locks do not work, and
// are refused. Use TransactionScope there (holdfast_scope=transaction in the
// URL): every lock then has a transaction, and a connection, of its own, as many
// as Options.Waits: an Acquire beyond them waits for one, and a try that finds none within
// Options.Timeout is ErrExhausted; semaphores are looked at every 50 ms; ForceRelease and
// watches are not available.
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
//	                      If it had a lock for 10 ms or longer, the next one is granted 50 ms later; else,
//	                      and of a semaphore, only the token protects there. So it is of readers after
//	                      the first that follow a writer, and of a mutex for a program with a connection
//	                      that has not yet brought the word that the mutex was held so long.
//	a silent cut          the holder knows after at most Keepalive + Timeout, 10 s by default; the server
//	                      frees the locks after about 25 s (TCP keepalive), so the holder knows first.
//	a stopped server      the holder knows after Keepalive + Timeout; nobody is granted meanwhile.
//	a stopped holder      keeps its locks as long as its machine answers the server's TCP keepalive, like
//	                      a hung program that holds a database transaction. ForceRelease with Now ends it.
//	TTL                   ignored: a hold, a session and its keys live as long as their connection.
//	FIFO                  by the arrival of the waiter's row, over all processes, for claims by this package.
//	                      A call has its row some statements after it began: of 20,000 grants to four programs
//	                      with eight callers each, at a load of 36 on two cores, 2,913 (14.6 %) overtook a call that
//	                      had begun more than 10 ms before, and one a row. Programs that use the same
//	                      advisory lock without this package have PostgreSQL's own order.
//	removed rows          of the tables, by TRUNCATE or DELETE, are made anew where that can be: holds of mutexes and
//	                      reader-writer locks go on, and tokens and revisions are greater than before. Holders of
//	                      semaphores, leaders and sessions are lost within 10 s, in which others may be granted the
//	                      semaphore; so are they when the schema is dropped, and mutexes and reader-writer locks
//	                      can still be given back. Counters, sequences, keys and limits begin anew, and a request
//	                      that is repeated may be done twice.
//	a killed program      what it held of a semaphore is free for waiters half a second later at the latest.
//	AcquireAll            one name after the other, in order of key; not in one step.
//	deadlock              is not detected between holds; take several names in one AcquireAll. Between
//	                      transactions with LockTx PostgreSQL does, and it is ErrConflict.
//	counters              Counter.Add is one UPDATE; if it is not answered it may have counted, as the
//	                      error's outcome says.
//	durable               keys, counters, sequences, latches and limits survive a restart of the server;
//	                      holds, sessions and their keys end with it. Tokens go on, also after a crash.
//	watch                 from now on, not from earlier revisions; events of keys, locks, reader-writer locks, semaphores,
//	                      elections, latches, barriers and limiters, not of counters, sequences and sessions, nor denied, queued, stale
//	                      and reclaimed. A release by force is told as revoked and, when the holder's program has given it back,
//	                      as released. A broken connection is a watch:resync. Keys that expire,
//	                      and holds and keys of programs that have ended, are told within a second or two.
//	                      An event above 7,900 bytes is kept for a minute; read later it is a watch:resync.
//	keys of a session     end 1,000 at a time, each at a revision of its own.
//	upgrade, resize,      no.
//	max-hold, min-hold,
//	delay
package pghold
