package driver

import "time"

// KV is a key as the engine has it.
type KV struct {
	Key      string
	Value    []byte
	Created  Revision // of its creation
	Modified Revision // of its last change
	Version  uint64   // 1 when created, then counted up
	Session  SessionID
	// ExpiresIn is the time left to its own expiry; 0: none.
	ExpiresIn time.Duration
}

// Target is what a Compare looks at.
type Target uint8

// The targets.
const (
	CompareMod     Target = iota // Num against Modified; 0 of an absent key
	CompareCreate                // Num against Created; 0 of an absent key
	CompareVersion               // Num against Version; 0 of an absent key
	CompareValue                 // Value against the value; an absent key fails
	CompareSession               // Session against the session; an absent key fails
)

// Relation is how a Compare compares. Sessions only know Equal and NotEqual.
type Relation uint8

// The relations, read as "the key's … is R than the Compare's".
const (
	Equal Relation = iota
	NotEqual
	Less
	Greater
)

// Compare is one condition of a transaction. With Prefix it must be true of
// every key that begins with Key; of none, it is true only if it would be true
// of an absent key.
type Compare struct {
	Key     string
	Prefix  bool
	Target  Target
	Is      Relation
	Num     uint64
	Value   []byte
	Session SessionID
	_       struct{}
}

// OpKind is what one operation of a transaction does.
type OpKind uint8

// The operations.
const (
	OpGet OpKind = iota
	OpPut
	OpDelete
)

// SortBy is the order of a range.
type SortBy uint8

// The orders; ties are broken by key.
const (
	ByKey SortBy = iota
	ByVersion
	ByCreate
	ByMod
	ByValue
)

// Op is one operation of a transaction.
type Op struct {
	Kind   OpKind
	Key    string
	Prefix bool // get, delete: all keys that begin with Key
	// Put.
	Value   []byte
	Session *Session      // the key ends with it
	Expire  time.Duration // the key ends by itself; 0: never
	// Get, and delete of a prefix.
	//
	// A get tells at most so many keys. A delete may leave the others for the next
	// call and says so (More): a server cannot delete any number at once. A backend
	// that can need not look at it. 0: all, or of a get as many as one answer takes.
	Limit int
	// Get.
	Sort     SortBy
	Desc     bool
	KeysOnly bool
	// After is where a prefix that is read in order of key goes on: with the keys
	// that follow this one in that order. The key need not exist.
	After string
	// Count asks for the number of all keys with the prefix.
	Count bool
	// Previous asks put and delete for what was there before.
	Previous bool
	_        struct{}
}

// TxnRequest does Then if every Compare is true, else Else; all of it or
// nothing, at one revision.
type TxnRequest struct {
	ID         [16]byte
	If         []Compare
	Then, Else []Op
	_          struct{}
}

// TxnReply has one result an operation of the branch that ran.
type TxnReply struct {
	OK       bool // Then ran
	Revision Revision
	Results  []OpResult
}

// OpResult is what one operation found: a get its keys, a put or delete with
// Previous what was there.
//
// Only a prefix that is read in order of key may be cut at less than its Limit, and
// is read on after its last key, or after the same one if it told none. Everything
// else is told whole, or the transaction is refused with ErrExhausted and has
// changed nothing.
type OpResult struct {
	KVs []KV
	// Count is how many keys a put or delete found. Of a get it is how many it
	// tells, and with Op.Count how many there are with the prefix.
	Count int64
	More  bool // there are more keys than were told or, of a delete with a Limit, removed
}
