// Package redishold keeps a Space on Redis: locks, reader-writer locks,
// semaphores, elections, latches, counters, sequences, keys and watches for
// programs on many machines that share a server.
//
//	s, err := holdfast.Open(ctx, "redis://user:password@host:6379/0")
//
// URLs are those of rueidis: redis:// and rediss:// (TLS), with ?addr=host:port
// for further nodes of a Redis Cluster and ?master_set=name for Sentinel, whose
// address the URL then has. holdfast_tls_ca, holdfast_tls_cert and
// holdfast_tls_key name PEM files: an authority instead of the system's, and
// what the client shows. Further parameters of ours are holdfast_prefix, holdfast_max_name, holdfast_extension,
// holdfast_min_validity, holdfast_busy_wait_min and holdfast_busy_wait_max: the
// fields of [Options]. [New] takes a client of rueidis that the program has
// already, [NewWith] one of any other library, such as go-redis. It
// needs Redis 6.2 or later, or Valkey.
//
// # How it works
//
// Every call is one script, which the server runs as one step by its own clock:
// it ends some of what is past its deadline, does its part and grants what that frees.
// Waiters stand in a queue on the server, in order of arrival over all
// processes, and are told of their grant by a message. A look every 10 to 200 ms,
// one for all waiters of a client, serves where a message was lost and notices
// ended holders; so there is no crowd to keep small, and no queue in the process.
// A waiting writer keeps new readers out.
//
// No script does more than a page of work for others, about 4 ms. What a session with
// many holds leaves when it ends is nobody's at once, for every caller, and is cleared away
// page by page by the calls of everybody and, one at a time, by a client that renews or
// waits. So are queues of which more can be granted than a page. A session cannot be
// used any more before it has been cleared away, and its end is told in a watch behind
// those of its holds.
//
// Holds hang on sessions, one entry with a deadline each in a sorted set, so
// that one command a tick renews all holds of a client, and each reader and each
// part of a semaphore ends with its own holder. The holder counts from before
// it sent the renewal, the server from when it got it: the holder knows first.
//
// Short ways serve what is common: a free mutex is one key until somebody waits,
// watches or looks (m:), its name is on a list of its session (in s:) that keeps
// about 256 names, and an addition to a counter that nobody watches is an
// INCRBY. A call to Counter.Add that is not answered may have counted, as the
// error's outcome says.
//
// A Space of a URL with one server has a connection more for a program whose
// calls come one at a time, less than 100 ms apart: the caller writes and reads
// itself there, which takes two thirds of the processor time. Locks that are taken
// and given back beside each other go to the server together.
//
// Requests carry an id. One that the library repeats because its answer was lost
// counts once, for ten minutes after it was sent last. A request that was
// taken back before the server heard of it is not granted to nobody.
//
// # Defaults
//
//	expiry             30 s (holdfast.TTL, from 1 s)   in the library this was ported from: the same
//	extension          a third of the TTL: 10 s        there: a third of the minimum validity, 9 s
//	minimum validity   nine tenths of the TTL: 27 s    there: the same
//	busy wait          10 to 200 ms                    there: 10 to 800 ms
//	key prefix         {holdfast}:                     there: none, the name is the key
//
// # Keys
//
// All begin with the prefix in braces, a hash tag: a Space is in one slot of a
// Redis Cluster, and grows by using several prefixes. rev is the revision, of
// which tokens are taken; due the deadlines; s:, c:, r: sessions, claims and
// resources; h:, q: their holders and queue; k:, n:, u:, #: keys, counters
// (signed, unsigned) and sequences; keys, names, sessions the indexes; watch is
// there while somebody watches; m: mutexes that were granted the short way; w:,
// x: answers and losses that a client has yet to hear, y: losses that it has heard;
// e: and ended sessions that have ended and are not cleared away yet, todo queues of
// which more can be granted, duty the client that does that; L: the rates of limiters, U:
// what their keys have used, I: those of them that never end by themselves, by the epoch of
// the rate, outdated the epochs that are over; version that of all this. The channels are ev (what
// Watch tells) and to: (one a client). Scripts use keys that are not among their arguments,
// so a proxy that routes by arguments needs the whole prefix on one server.
//
// # Rights
//
// A user needs the rights to read, write and run scripts, to all keys and channels that begin
// with the prefix: ACL SETUSER name ~{holdfast}:* &{holdfast}:* +@all. From Redis 7 on a new user has
// no channels. A script that lacks a right notices that where it is needed, and may have done a part
// before: the call is fs.ErrPermission with an unknown outcome.
//
// # Versions
//
// The key version says which version of this package has written what is there. A
// program that opens a prefix raises it to its own, takes over what has none, and
// refuses what a newer one wrote, also for new sessions of a program that was there
// before. Update all programs of a prefix together.
//
// # What it cannot promise
//
//	promise                  kept?
//	lost-first               on a single server that keeps its data; not declared behind
//	                         Sentinel or in a cluster, where a failover may forget a grant
//	                         that was answered; a server without persistence forgets all
//	                         in a restart, and a jump of its wall clock ends sessions early
//	growing tokens           for ever, also over a wiped server: they begin anew at the
//	                         clock, to the microsecond (unless it is set back); a failover,
//	                         or a restart from an older snapshot, may forget the newest
//	a slot that moves        holds stay; while the keys of a Cluster's slot are on their way,
//	                         calls are refused as unavailable
//	durable                  as the server's own settings are; not declared
//	atomic AcquireAll        no: one after the other in order of name
//	upgrade, resize,         no
//	max-hold, min-hold, delay
//	watch from the past      no: Redis keeps no messages. Denied and queued claims are not
//	                         told. A gap is a watch:resync
//	limits and weights       exact below 2⁵⁰
//
// # Memory
//
// A server that evicts keys forgets locks. Open, and with [New] the first call, asks
// for its maxmemory-policy (INFO memory, on the node that has the prefix) and refuses
// allkeys-*; no key that matters has an expiry, so that volatile-* takes none, but for
// what the keys of limiters have used, which begin anew when they are evicted. A user
// without the right to ask INFO is not refused, and nobody notices if the setting is
// changed later, or is another one after a failover: have maxmemory-policy noeviction.
// Where the memory is full then, holds are still renewed, given back, handed to those that
// wait and forced, waits and sessions end, latches are counted down, what was taken from limiters is given
// back, and keys and counters can be deleted; what is new is refused as unavailable, and clears away what has ended.
//
// # RedLock
//
// [OpenRedLock], or redlock://host:port?addr=host:port&addr=…, grants mutexes by
// a majority of independent servers: n/2+1 have to say yes, and with n/2 + n%2
// failures it is given up. Validity is counted from before the first command. A
// grant takes a second round: its token is greater than every one that a
// majority knows, and is written to a majority before it returns. It declares
// mutexes, tokens, waits and Inspect, nothing else; waiters of one process take
// turns, those of several are served by chance. Release tells all servers, and waits
// for a majority and a moment for the others. A try is refused if a majority names one
// holder, or cannot be asked; attempts of others that came to nothing are waited for.
// The last token of a name is forgotten after a day, and then begins at the clock. A
// server that forgets its locks
// in a restart can help to grant one that is held: have them persist, and fence
// what matters (packages fence and fence/fenceredis). Locks here are keys with an
// expiry: a server with an eviction of any kind does not count, and Open refuses it.
package redishold
