package onstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// What a key is for is told by how it begins.
const (
	lockPrefix     = "l/"
	counterPrefix  = "c/"
	sequencePrefix = "q/"
	keyPrefix      = "k/"
)

// lockEntry is the value of a lock's key.
type lockEntry struct {
	// Holder is the request that took it; empty: it is free.
	Holder string `json:"holder,omitempty"`
	// Token is the holder's, or the last one's; 0: the revision of this very
	// change.
	Token driver.Token  `json:"token,omitempty"`
	Owner string        `json:"owner,omitempty"`
	Meta  string        `json:"meta,omitempty"`
	TTL   time.Duration `json:"ttl,omitempty"`
	// Since and Deadline are engine time; 0: it has none.
	Since    time.Duration `json:"since,omitempty"`
	Deadline time.Duration `json:"deadline,omitempty"`
	// Last is the token before this grant.
	Last driver.Token `json:"last,omitempty"`
}

// token is the entry's at a revision.
func (e *lockEntry) token(revision driver.Revision) driver.Token {
	if e.Token != 0 {
		return e.Token
	}
	return driver.Token(revision)
}

// numberEntry is the value of a counter or sequence.
type numberEntry struct {
	Value    uint64 `json:"value,string"`
	Unsigned bool   `json:"unsigned,omitempty"`
	// Ended: a sequence has given its last number.
	Ended bool `json:"ended,omitempty"`
	// Recent are the last requests that changed it, with what they were told, and Asked
	// the last of those that their callers may ask for again in another call.
	Recent []done `json:"recent,omitempty"`
	Asked  []done `json:"asked,omitempty"`
}

// done is a request that was done, and its answer.
type done struct {
	ID    string `json:"id"`
	Value uint64 `json:"value,string"`
	Swap  bool   `json:"swap,omitempty"`
}

// memory is how many requests a key remembers, and longMemory how many of those that
// are asked for again: at the earliest when others have had their turn.
const (
	memory     = 8
	longMemory = 64
)

// remember notes a request; the oldest is forgotten.
func (n *numberEntry) remember(d done, again bool) {
	n.Recent = inFront(n.Recent, d, memory)
	if again {
		n.Asked = inFront(n.Asked, d, longMemory)
	}
}

func inFront(list []done, d done, most int) []done {
	list = append([]done{d}, list...)
	return list[:min(len(list), most)]
}

// remembered are the requests that one of its kind would be among, the last first, and
// how many there can be.
func (n *numberEntry) remembered(again bool) (list []done, most int) {
	if again {
		return n.Asked, longMemory
	}
	return n.Recent, memory
}

// newest is the last request that changed it.
func (n *numberEntry) newest(again bool) string {
	list, _ := n.remembered(again)
	if len(list) == 0 {
		return ""
	}
	return list[0].ID
}

// forgets reports that a request may have been done and forgotten since newest was the
// last.
func (n *numberEntry) forgets(newest string, again bool) bool {
	list, most := n.remembered(again)
	return len(list) == most && !slices.ContainsFunc(list, func(d done) bool { return d.ID == newest })
}

// recall is the answer to a request that was done.
func (n *numberEntry) recall(id string) (done, bool) {
	for _, list := range [][]done{n.Recent, n.Asked} {
		if i := slices.IndexFunc(list, func(d done) bool { return d.ID == id }); i >= 0 {
			return list[i], true
		}
	}
	return done{}, false
}

// keyEntry is the value of a key.
type keyEntry struct {
	Value   []byte          `json:"value,omitempty"`
	Created driver.Revision `json:"created,omitempty"` // 0: the revision of this very change
	Version uint64          `json:"version"`
	// Expire is how long it lasts, or deletedKey; Deadline when it ends, in engine
	// time; 0: it has none.
	Expire   time.Duration `json:"expire,omitempty"`
	Deadline time.Duration `json:"deadline,omitempty"`
	// By is the request that wrote it.
	By string `json:"by,omitempty"`
}

// deletedKey is the Expire of a tombstone: its time was over before it began.
const deletedKey = time.Duration(-1)

// deleted reports a tombstone.
func (e *keyEntry) deleted() bool { return e.Expire < 0 }

// decode reads the value of an item.
func decode[T any](i *driver.Item) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(i.Value, v); err != nil {
		return nil, driver.Errorf("", i.Key, driver.ErrUnavailable, "the engine's key %q has a value that is not ours (%w): remove it", i.Key, err)
	}
	return v, nil
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("onstore: %T does not encode: %v", v, err))
	}
	return b
}
