package holdfast

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// KV keeps small values under keys, each with the revision of its last change.
// Keys obey the rules of names and are apart from them. Safe for concurrent
// use.
type KV struct{ s *Space }

// KV is the Space's keys.
func (s *Space) KV() *KV { return &KV{s} }

// Entry is a key and its value.
type Entry struct {
	Key       string
	Value     []byte
	Created   Revision
	Modified  Revision
	Version   uint64        // 1 when created, then counted up
	Session   SessionID     // the key ends with it; zero: with none
	ExpiresIn time.Duration // to its own end; 0: none
}

func (k *KV) entry(kv driver.KV) Entry {
	return Entry{
		Key: trim(kv.Key, k.s.prefix), Value: kv.Value,
		Created: kv.Created, Modified: kv.Modified, Version: kv.Version,
		Session: kv.Session, ExpiresIn: kv.ExpiresIn,
	}
}

// Get returns a key; ErrNotFound: there is none.
func (k *KV) Get(ctx context.Context, key string) (Entry, error) {
	res, err := k.one(ctx, "get", key, nil, GetOp(key))
	if err != nil {
		return Entry{}, err
	}
	if len(res.Results[0].Entries) == 0 {
		return Entry{}, &Error{Op: "get", Name: k.s.prefix + key, Kind: ErrNotFound, Outcome: driver.NotDone}
	}
	return res.Results[0].Entries[0], nil
}

// Put sets a key and returns the revision of the change. Keep values small: on mem:,
// embed:, holdfast: and file: the whole request has at most 64 KiB, on nats: what the
// server's max_payload allows, 1 MB unless set; more is ErrInvalid.
func (k *KV) Put(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error) {
	res, err := k.one(ctx, "put", key, nil, PutOp(key, value, opts...))
	return res.Revision, err
}

// Create sets a key that does not exist; if it does, ErrConflict.
func (k *KV) Create(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error) {
	return k.swap(ctx, "create", key, Absent(key), PutOp(key, value, opts...))
}

// CompareAndSwap sets a key that was last changed at old; if it was not,
// ErrConflict. old 0 means that the key does not exist.
func (k *KV) CompareAndSwap(ctx context.Context, key string, old Revision, value []byte, opts ...PutOption) (Revision, error) {
	return k.swap(ctx, "compare and swap", key, ModifiedAt(key, old), PutOp(key, value, opts...))
}

// CompareAndDelete deletes a key that was last changed at old; if it was not,
// ErrConflict.
func (k *KV) CompareAndDelete(ctx context.Context, key string, old Revision) (Revision, error) {
	if old == 0 {
		return 0, wrap("compare and delete", k.s.prefix+key, invalid("the revision 0 means no key; there is nothing to delete"))
	}
	return k.swap(ctx, "compare and delete", key, ModifiedAt(key, old), DeleteOp(key))
}

// Delete deletes a key and tells whether there was one.
func (k *KV) Delete(ctx context.Context, key string) (deleted bool, err error) {
	res, err := k.one(ctx, "delete", key, nil, DeleteOp(key))
	return err == nil && res.Results[0].Count > 0, err
}

// swap does op if cond holds.
func (k *KV) swap(ctx context.Context, op, key string, cond Compare, do Op) (Revision, error) {
	res, err := k.one(ctx, op, key, []Compare{cond}, do)
	if err != nil {
		return 0, err
	}
	if !res.OK {
		return 0, &Error{Op: op, Name: k.s.prefix + key, Kind: ErrConflict, Outcome: driver.NotDone, Err: errChanged}
	}
	return res.Revision, nil
}

var errChanged = errors.New("the key was changed meanwhile; Get it and decide anew")

// one is a transaction about one key.
func (k *KV) one(ctx context.Context, op, key string, cond []Compare, do Op) (TxnResult, error) {
	return k.txn(ctx, op, k.s.prefix+key, Txn{If: cond, Then: []Op{do}})
}

// Range yields the keys that begin with prefix, all of them or up to [MaxKeys], in
// order of key unless an option says otherwise. It reads page by page, each page at
// one revision: what changes meanwhile may be seen before or after, and what is
// there all the time is yielded once. Another order needs one page that has all: a
// server answers ErrExhausted if that looks at more than 10,000 keys or does not fit
// into 1 MiB. An error is the last pair.
func (k *KV) Range(ctx context.Context, prefix string, opts ...RangeOption) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		op := RangeOp(prefix, opts...)
		limit := op.op.Limit
		for told := 0; ; {
			if limit > 0 {
				op.op.Limit = limit - told
			}
			page, err := k.page(ctx, op)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range page.Entries {
				if !yield(e, nil) {
					return
				}
			}
			told += len(page.Entries)
			op.op.After, op.goesOn = page.Next, page.More && op.op.Sort == driver.ByKey
			if !op.goesOn || told == limit {
				return
			}
		}
	}
}

// Page is some keys at one revision.
type Page struct {
	Entries []Entry
	// Count is how many keys begin with the prefix if that was asked for by
	// [Counted], else how many Entries there are.
	Count int64
	// More: there are more keys. Next, if it is not empty, gets them: range again
	// [AfterKey] it.
	More     bool
	Next     string
	Revision Revision
}

// Page returns the first keys that begin with prefix, all at one revision: as many
// as one answer takes, on a server about 1 MiB and at most 10,000, or fewer by
// [MaxKeys]. See Range about other orders than that of keys.
func (k *KV) Page(ctx context.Context, prefix string, opts ...RangeOption) (Page, error) {
	return k.page(ctx, RangeOp(prefix, opts...))
}

func (k *KV) page(ctx context.Context, op Op) (Page, error) {
	name := k.s.prefix + op.op.Key
	res, err := k.txn(ctx, "range", name, Txn{Then: []Op{op}})
	if err != nil {
		return Page{}, err
	}
	found := res.Results[0]
	page := Page{Entries: found.Entries, Count: found.Count, More: found.More, Revision: res.Revision}
	n := len(page.Entries)
	switch {
	case !page.More || op.op.Sort != driver.ByKey:
	case n == 0:
		return Page{}, wrap("range", name, driver.Errorf("", "", ErrUnavailable, "the backend says that there are more keys and tells none"))
	default:
		page.Next = page.Entries[n-1].Key
	}
	return page, nil
}

// RangeOption is an order ([ByKey] and its like), [Descending], [MaxKeys], [AfterKey],
// [KeysOnly] or [Counted].
type RangeOption interface{ ranging(*driver.Op) }

// Order is the order of a Range; ties are broken by key.
type Order uint8

// The orders.
const (
	ByKey      = Order(driver.ByKey)
	ByVersion  = Order(driver.ByVersion)
	ByCreated  = Order(driver.ByCreate)
	ByModified = Order(driver.ByMod)
	ByValue    = Order(driver.ByValue)
)

func (o Order) ranging(op *driver.Op) { op.Sort = driver.SortBy(o) }

// MaxKeys cuts a range to so many keys; 0: no limit.
type MaxKeys int

func (n MaxKeys) ranging(op *driver.Op) { op.Limit = int(n) }

type rangeFunc func(*driver.Op)

func (f rangeFunc) ranging(op *driver.Op) { f(op) }

// Descending turns the order round, also among keys that are equal in it.
func Descending() RangeOption { return rangeFunc(func(op *driver.Op) { op.Desc = true }) }

// AfterKey begins a range behind a key, in its order; there need not be such a key.
// Only a range in order of key can begin so.
func AfterKey(key string) RangeOption { return rangeFunc(func(op *driver.Op) { op.After = key }) }

// Counted counts all keys that begin with the prefix, also those that [MaxKeys] and
// [AfterKey] leave out. A server counts 10,000 at most and answers ErrExhausted if
// there are more.
func Counted() RangeOption { return rangeFunc(func(op *driver.Op) { op.Count = true }) }

// KeysOnly leaves the values out.
func KeysOnly() RangeOption { return rangeFunc(func(op *driver.Op) { op.KeysOnly = true }) }
