package driver

import (
	"context"
	"iter"
	"time"
)

// Store is an engine that can do no more than compare and swap one key at a
// time. Package onstore makes a [Driver] of it. All methods may be called at
// the same time.
//
// Its revisions grow with every change, over all keys, and for ever: a key that
// was deleted and made anew has a greater one than it ever had.
//
// An [*Error] is the engine's final answer (no right, no room, no such bucket) and
// ends the call that it was for. Any other error is taken for a request that may
// have been lost, and is tried again.
type Store interface {
	// Get reads a key, as it is after every change that was answered before.
	// One that does not exist has the revision 0, and no error.
	Get(ctx context.Context, key string) (Item, error)
	// Swap sets a key that is at the revision old; 0: that does not exist. If
	// it is at another, ErrConflict, and nothing has changed. The revision
	// returned is the key's from then on. Any other error may mean that it was
	// done.
	Swap(ctx context.Context, key string, old Revision, value []byte) (Revision, error)
	// Delete deletes a key that is at the revision old, like Swap.
	Delete(ctx context.Context, key string, old Revision) (Revision, error)
	// List reads all keys that begin with prefix, in any order, each as Get does. It bounds itself
	// how long it hears nothing from the engine: only it knows how long many keys
	// may take.
	List(ctx context.Context, prefix string) ([]Item, error)
	// Changed yields first an Item without a key, with the revision of the
	// last change before; then every change of the key, in order; of all keys if
	// key is empty. Another Item without a key says that changes up to its
	// revision may be missing; those of them that come all the same do no harm. One with
	// the engine's newest revision is enough for a reader that was far behind, and
	// the changes up to it need not come any more. It outlives a broken connection where it can, and
	// ends with ctx, or with an error as its last pair.
	Changed(ctx context.Context, key string) iter.Seq2[Item, error]
}

// Fallible is a [Store] that notices when its engine has lost what it answered, or
// was set up so that it may lose it. Broken is then why, for good: every method
// returns it, and holds end.
type Fallible interface {
	Store
	Broken() error
}

// Sweeper is a [Store] that keeps something of a key when it is deleted, or earlier
// states of it.
type Sweeper interface {
	Store
	// Forget removes every trace of a key up to a revision, at which it was idle or
	// deleted. What the key was since stays, and what cannot be removed is no error.
	Forget(ctx context.Context, key string, revision Revision) error
	// Sweep forgets all keys that begin with prefix and are deleted, or idle, and
	// were not changed for a minute. It tells how many.
	Sweep(ctx context.Context, prefix string, idle func(Item) bool) (int64, error)
}

// Item is a key of a [Store].
type Item struct {
	Key      string
	Value    []byte   // it is never changed in place
	Revision Revision // of its last change; 0: it does not exist
	// Deleted: the change was its end. Only Changed tells it.
	Deleted bool
	// Now is the engine's clock when it answered, as a time since whenever it
	// likes; 0: it has none that all clients can rely on.
	Now time.Duration
	// Age is for how long at least it has been as it is, whatever clocks say; 0:
	// unknown. Sweep tells it; a Get that does lets callers that look only once
	// find that a holder's time is over.
	Age time.Duration
}
