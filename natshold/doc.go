// Package natshold keeps a Space in a bucket of NATS JetStream: locks with
// fencing tokens, several names at once, counters, sequences, keys and watches,
// for programs on many machines that share a NATS server or cluster.
//
//	s, err := holdfast.Open(ctx, "nats://user:password@host:4222/bucket")
//
// A user name without a password is a token. Without a path the bucket is
// holdfast. Parameters of the URL are addr (a further server of the cluster; may
// be repeated), create=false, replicas, history and storage=memory: the fields of
// [Options]. TLS is used if the server asks for it; holdfast_tls_ca,
// holdfast_tls_cert and holdfast_tls_key name PEM files for it. [New] takes a
// connection that the program has already, with credentials files or whatever else
// it was made with. It needs a server from 2.9 on, and one from 2.10 on to make a
// bucket.
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
// and one percent more on their own clocks. So the lock of a program that has ended is free
// after that time from when somebody begins to ask for it.
//
// One waiter a process and name asks the server; the others wait behind it. It
// has the bucket's changes of that key pushed to it, and looks again every 10 ms,
// doubled up to a second, with jitter, since a push may be lost.
//
// With one replica any read is of what was answered before. With several, reads
// are asked of the leader, which is slower than the direct reads of NATS, since a
// replica may lag behind. Do not give the bucket a mirror with mirror_direct
// while programs use it: it answers in the bucket's place, until they look at the
// set-up again.
//
// # What is in the bucket
//
// Keys begin with l. (locks), c. (counters), q. (sequences) or k. (keys); what
// NATS does not allow in a key is written as = and two hexadecimal digits. Values
// are JSON. The key holdfast is the mark: it says of which version the bucket is. A
// program that knows less is refused when it opens it, and told so within a second
// of its next change when it has it open. A bucket without a mark is of before, and
// taken over as it is.
//
// A released lock stays for a minute, with its last token and up to
// [Options.History] earlier states; then the program that gave it back removes it.
// What a program leaves that ends before that, or gives back more than 10,000
// names in a minute, is removed by a sweep (holdfast sweep, or the driver's
// method), as is what is left of keys, counters and sequences that were deleted. A
// watch that is more than a minute behind gets a watch:resync for it.
//
// # A bucket that forgets
//
// Locks need a bucket that keeps what it answers. Refused, with the setting named,
// are max_age, max_bytes and max_msgs with discard old, a retention other than
// limits, discard_new_per_subject, max_msgs_per_subject below 1, no_ack, sealed,
// mirrors and sources. While a program uses the bucket it looks at the set-up again,
// once a second at most, with what it writes; and it takes a key that is not there
// for free only if the mark is, since whatever forgets in order of age takes that
// first. When somebody has set such a thing since, or the bucket was purged or made
// anew, calls are ErrUnavailable and holds end at their next renewal, with the
// reason. While the bucket is gone calls are ErrUnavailable, too, and holds end when
// they were not renewed in time. A bucket that Open has made cannot be purged. In one that the tools of
// NATS have made, or an earlier version, the purge of a single key is not noticed:
// it frees a lock under its holder, as deleting its key by hand does.
//
// Revisions begin at the clock, 2²⁰ a second, so that tokens grow although a bucket
// was removed and made anew, by Open or by the tools of NATS. One that an earlier
// version has made keeps its small ones.
//
// With one replica the bucket is gone with the disk of its server. Three lose
// nothing with one of them; two stop with either.
//
// The user needs the rights to publish to $KV.bucket.> and to
// $JS.API.STREAM.INFO.KV_bucket, $JS.API.STREAM.MSG.GET.KV_bucket,
// $JS.API.DIRECT.GET.KV_bucket.>, $JS.API.CONSUMER.CREATE.KV_bucket.>,
// $JS.API.CONSUMER.DELETE.KV_bucket.> and $JS.API.CONSUMER.MSG.NEXT.KV_bucket.>, also to
// $JS.API.STREAM.CREATE.KV_bucket if the bucket does not exist, and to subscribe to
// _INBOX.>. To sweep it needs
// $JS.API.STREAM.MSG.DELETE.KV_bucket; in a bucket that Open has not made it is
// $JS.API.STREAM.PURGE.KV_bucket, also to be the first that opens a new one. A
// request that lacks one is fs.ErrPermission and names it; only what a program
// would remove by itself stays without a word.
//
// # When the server is away
//
// A call that waits for nobody is ErrUnavailable after about ten seconds, and says
// whether it may have been done. Acquire waits on, and holds last until their
// deadline, so that a restart that is shorter than the TTL loses none. A watch
// goes on where it was, if that is still there. Nothing is kept to be sent later.
//
// # When a holder is gone
//
// Its lock is free for a program that has seen it unchanged for the TTL and one
// percent. One that only tries, and has not looked before, cannot know that: it gets
// the lock when the server's clock says that it was not renewed for a day and the
// TTL, since clocks may differ. Wait with Acquire where that is too long.
//
// A program that runs on after it has lost a hold, as one that was stopped or cut off
// for longer than the TTL, gives its lock back unless another has taken it. It tries
// for a day, with pauses of at most 15 s; Close waits for no pause, and tries for up
// to 3 s more.
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
//	growing tokens         as long as the server keeps what it answered, and its clock and
//	                       that of the client that makes a bucket do not go back. A client that sees
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
//	transactions           of one key; List and Range are not of one moment, and look at all keys
//	                       of their kind, whatever the prefix; so does a watch when it begins,
//	                       unless it is of one name. The revision of a range is that of the newest
//	                       key in it, and 0 if there is none
//	large values           a value is kept as base64, so that of max_payload a little less than
//	                       three quarters are for it: about 785,000 bytes of 1 MiB
//	exactly once           an answer that was lost is asked for again, as long as no more than
//	                       eight others have changed the counter or sequence since; a flush of a
//	                       buffered counter, as long as no more than 64 others have flushed theirs
//	watch from the past    no. A watch that falls behind further than the history of a key, be it one that
//	                       it does not ask for, gets a watch:resync for all that it is behind, and goes
//	                       on with what comes then
//	keys that expire       end on the clock of each reader, from when it first saw them;
//	                       a watch is not told of that
package natshold
