// Package session keeps one client session with a Holdfast server: it gives
// every command a number, carries it to exactly one answer over streams that
// come and go, keeps the session alive, and knows to the nanosecond how long its
// holds may be believed in.
//
// A [Session] is pure. A shell, which owns the connection, the clock and the
// callers, tells it what happened (a command, a stream, a message, time) and
// does what it asks for ([Action]): send this, this call is over, this hold is
// lost, the deadline has moved, the session is dead. The same inputs give the
// same actions, so that the production code runs in a simulation.
//
// # Exactly once
//
// Every command is known by the session and its number. It is sent again, under
// the same number, until it is answered; the server remembers the answer until
// the session's mark has passed the number. A call ends [Answered], [NotDone]
// (it certainly did not happen) or [Unknown], the latter only if the session is
// gone, the caller stopped waiting, or the server refused to take a command that had been
// sent before.
//
// # Lost before re-granted
//
// The session's deadline D is mapped from cluster time by package deadline. Only
// the answer to an attempt anchors the two clocks, with the time at which that
// very attempt was sent. D only grows, and when it has passed the session is
// dead for ever, whatever arrives later.
//
// # Streams
//
// Each stream has a number; the greatest wins, and messages of older streams are
// discarded. The first thing on a stream is the server's table of the session's
// claims: losses are processed before anything that could prolong a belief. What
// the session takes as gone it cancels, so that nothing is held by nobody.
//
// All times are nanoseconds of the client's elapsed time, which must count
// suspended time; they are not negative, and where they begin means nothing.
package session
