// Package holdfast lets programs on many machines take turns safely: locks,
// reader-writer locks, semaphores, elections, latches, counters, sequences,
// keys and watches, over whatever backend is at hand.
//
// A program opens a [Space] by URL and takes its turn:
//
//	s, err := holdfast.Open(ctx, "file:///var/lock/app")
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//
//	hold, err := s.Mutex("jobs/nightly").Acquire(ctx) // ctx bounds the wait only
//	if err != nil {
//		return err
//	}
//	defer hold.Release()
//	return work(hold.Bind(ctx), hold.Token())
//
// The backend is a blank import away: package all brings every one, memhold
// alone keeps everything in the process.
//
// # There are only a few types
//
//   - A [Space] is a set of names shared by all programs that open it. A name is
//     1 to 512 bytes of UTF-8 without control characters.
//   - A [Mutex], [RWMutex], [Semaphore] or [Election] is a name that can be
//     held. Making one does no I/O; it is safe for concurrent use.
//   - A [Hold] is a turn in your hand. It can be lost: a machine that sleeps, a
//     network that is cut, an operator that decides so. [Hold.Err] is nil
//     as long as it lasts, as far as this program can know; [Hold.Done] and a
//     context made by [Hold.Bind] end with it.
//   - A [Token] orders the turns of a name. A holder that was stopped between
//     its last look and its write cannot know that it lost; the receiver of
//     the write can, by refusing older tokens. Package fence does so.
//   - A [Session] is the liveness behind it all. The library keeps one for you;
//     open your own to have keys and holds end together.
//   - [Counter], [Sequence], [Latch], [Barrier] and [KV] are shared state.
//     [Space.Watch] tells what happens to all of it.
//
// # Do
//
// The shortest way to hold something is Do, which every such type has: it
// acquires, runs a function with a context that ends with the hold, and
// releases however the function ends. If the hold was lost meanwhile, Do
// returns [ErrLost], and not the cancellation that the loss caused.
//
// # Errors
//
// Every error of this package is an [*Error]: it says which call, about which
// name, of which kind and why, and errors.Is finds kind and cause. [NotDone]
// tells whether a failed call surely changed nothing.
package holdfast
