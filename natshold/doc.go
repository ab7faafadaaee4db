// Package natshold keeps a Space in a bucket of NATS JetStream: locks with
// fencing tokens, several names at once, counters, sequences, keys and watches,
// for programs on many machines that share a NATS server or cluster.
//
//	s, err := holdfast.Open(ctx, "nats://user:password@host:4222/bucket")
//
// A user name without a password is a token. Without a path the bucket is
// holdfast. Parameters of the URL are addr (a further server of the cluster; may
// be repeated), create=false, replicas, history and storage=memory: the fields of
// [Options]. [New] takes a connection that the program has already, with TLS,
// credentials files or whatever else it was made with. It needs a server from 2.9
// on.
//
// # How it works
//
// Every change is one message that the server takes only if the last one about
// its key is the one that was seen: compare-and-swap. The number that the server
// gives to it is the revision; that of a grant is its token. Package
// driver/onstore makes locks, counters, sequences and keys of that.
//
// A lock is one key that names its holder. The holder renews it at a third of the
// TTL (default 30 s, at least 1 s), with one message, and counts its own deadline
// from before the message was sent. NATS has no clock that all clients could rely
// on: others take a lock over when they have seen it unchanged for its whole TTL
// and one percent more on their own clocks. So the lock of a dead program is free
// after that time from when somebody begins to ask for it.
//
// One waiter a process and name asks the server; the others wait behind it. It
// has the bucket's changes of that key pushed to it, and looks again every 10 ms,
// doubled up to a second, with jitter, since a push may be lost.
//
// With one replica any read is of what was answered before. With several, reads
// are asked of the leader, which is slower than the direct reads of NATS, since a
// replica may lag behind. Do not give the bucket a mirror with mirror_direct
// while programs use it: it answers in the bucket's place.
//
// # What is in the bucket
//
// Keys begin with l. (locks), c. (counters), q. (sequences) or k. (keys); what
// NATS does not allow in a key is written as = and two hexadecimal digits. Values
// are JSON. A released lock stays, with its last token, and so do up to
// [Options.History] earlier states of each key: some kilobytes for each name that
// was ever a lock. Names should not be made up without end.
//
// The user needs the rights to publish to $KV.bucket.> and to
// $JS.API.STREAM.INFO.KV_bucket, $JS.API.STREAM.MSG.GET.KV_bucket,
// $JS.API.DIRECT.GET.KV_bucket.>, $JS.API.CONSUMER.CREATE.KV_bucket.> and
// $JS.API.CONSUMER.DELETE.KV_bucket.>, also to $JS.API.STREAM.CREATE.KV_bucket if
// the bucket does not exist, and to subscribe to _INBOX.>. A request that lacks
// one is fs.ErrPermission and names it.
//
// # When the server is away
//
// A call that waits for nobody is ErrUnavailable after about ten seconds, and says
// whether it may have been done. Acquire waits on, and holds last until their
// deadline, so that a restart that is shorter than the TTL loses none. A watch
// goes on where it was. Nothing is kept to be sent later.
//
// # What it cannot promise
//
//	promise                kept?
//	durable                not declared. A restart, orderly or not, loses nothing: messages are
//	                       written to a file before they are answered. But the file is synced
//	                       every two minutes only (sync_interval), so a power loss may take
//	                       back what was answered in that time, grants too. sync_interval:
//	                       always in the server's configuration ends that, for some
//	                       tenths of a millisecond a message; three replicas that do not
//	                       lose power together help too
//	growing tokens         as long as the server keeps what it answered. A client that sees
//	                       revisions go back is done: every further call of it is
//	                       ErrUnavailable and says why. One that has seen none cannot know
//	lost-first             not declared. A holder knows before the next is granted, as long as
//	                       the server keeps what it answered and clocks are within one percent
//	first come, first      within a process only
//	served
//	AcquireAll at once     no: one name after the other, in order of name
//	reader-writer locks,   no
//	semaphores, elections,
//	latches, sessions,
//	force, max-hold,
//	min-hold, delay
//	transactions           of one key; List and Range are not of one moment, and read all of
//	                       their kind
//	exactly once           an answer that was lost is asked for again, as long as no more than
//	                       eight others have changed the counter or sequence since
//	watch from the past    no. Who falls behind further than the history of a key gets a
//	                       watch:resync
//	keys that expire       end on the clock of each reader, from when it first saw them
package natshold
