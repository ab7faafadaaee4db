// Package core decides what each session holds: it is the whole state of one group of
// Holdfast as a pure machine.
//
// Give [Machine.Apply] an encoded log entry and it answers every command,
// says what to push to which session, and tells what happened as events. The
// same entries give the same bytes everywhere: the package reads no clock,
// draws no random number, starts no goroutine, and nothing that it puts out
// depends on the order of a map.
//
// Time is cluster time: nanoseconds that only entries bring along and that
// never go back. Revisions are the machine's own count of changes: every change
// takes the next one, and every grant its own, which is the grant's token.
//
// # Order inside an entry
//
// Renewals come first, then the commands in order, each granting at once what
// it frees; then one pass ends the sessions, claims and keys whose deadline has
// passed and grants what that frees. No other code compares deadlines: a
// session lives until its end is applied.
//
// # Exactly once
//
// A command is known by its session and number. Its result is kept until the
// client's mark has passed the number; a repeated command is answered from
// there and does nothing. An Acquire is answered when it is applied, granted or
// queued: the claim itself is the record of a wait.
package core
