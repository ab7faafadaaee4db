// Package onstore makes a driver of any engine that can compare and swap: locks
// with sessions and fencing tokens, counters, sequences, keys and watches.
//
//	d := onstore.New(store, onstore.Options{Info: driver.Info{Scheme: "nats"}})
//
// A lock is one key that names its holder. Its token is the revision at which it
// was taken, so that it grows for ever; a released lock stays for a minute as a
// tombstone with its last token, which catches an engine with revisions that have gone
// back; then its driver removes it, or Sweep does. A
// holder renews at a third of its TTL; its own deadline counts from before the
// request was sent. The others take a lock over when the engine's clock has
// passed the deadline that is written in it, or, where the engine has no clock,
// when they have seen it unchanged for its whole TTL and a little more on their
// own. A driver gives back what its holder has lost, if nobody has taken it: it
// tries for a day, with pauses of at most 15 s, and once more when it is closed.
//
// One waiter a process and name asks the engine; the others wait behind it, in
// the order of their arrival. It is woken by changes of the key, and looks again
// after a pause of 10 ms, doubled up to a second, with jitter.
//
// Counters and sequences are read, changed and swapped, at most 100 times about
// a millisecond apart; then the error says how often it was tried. A key
// remembers the last few requests, so that one with a lost answer is not
// done twice.
//
// # What it cannot promise
//
//	promise            | here
//	-------------------|-----------------------------------------------------------------
//	FIFO               | within a process only
//	lost-first         | no: an engine without a clock is judged by the observer's, and a
//	                   | holder that is stopped between its look and its deed is not seen;
//	                   | use the token
//	reader-writer,     | no
//	semaphore, election|
//	AcquireAll at once | no: one name after the other, in order of name
//	exactly once       | after more than eight later changes of the key a lost answer stays
//	                   | unknown; what a caller may ask for again, as a flush of a buffered
//	                   | counter, is done once unless 64 others of its kind came between
package onstore
