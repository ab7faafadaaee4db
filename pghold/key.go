package pghold

import (
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io/fs"
	"strconv"
	"unicode/utf16"

	"github.com/holdfast-io/holdfast/driver"
)

// Key is an advisory lock of PostgreSQL: one bigint, or two integers. The two
// are different spaces: Single(0) and Pair(0, 0) are two locks. The zero Key is
// Single(0). Keys can be compared with ==.
type Key struct {
	n    int64
	pair bool
}

// Single is the key of pg_advisory_lock(n).
func Single(n int64) Key { return Key{n: n} }

// Pair is the key of pg_advisory_lock(a, b).
func Pair(a, b int32) Key {
	return Key{n: int64(a)<<32 | int64(uint32(b)), pair: true}
}

// ParseKey is the key of a name, the same that other programs with these rules
// use:
//
//   - up to nine ASCII characters are packed into two integers; no two such
//     names share a key;
//   - 16 hexadecimal digits are one bigint;
//   - 8 digits, a comma and 8 digits are two integers;
//   - everything else is hashed (the first eight bytes of SHA-1) to one bigint,
//     if hashing is allowed, and is otherwise an error.
//
// The forms overlap: "lock" and "d9bf1eb7,ffffffff" are one lock.
func ParseKey(name string, hashing bool) (Key, error) {
	if k, ok := packed(name); ok {
		return k, nil
	}
	if k, ok := digits(name); ok {
		return k, nil
	}
	if !hashing {
		return Key{}, driver.Errorf("parse key", name, fs.ErrInvalid,
			"the name would have to be hashed, which is not allowed here; use at most 9 ASCII characters, 16 hexadecimal digits, or 8 and 8 with a comma between")
	}
	sum := sha1.Sum([]byte(name))
	return Single(int64(binary.LittleEndian.Uint64(sum[:]))), nil
}

// maxPacked is how many characters fit: 9·7 bits and the one that ends them.
const maxPacked = 9

// packed puts seven bits a character in front of a 0 and then only 1.
func packed(name string) (Key, bool) {
	units := utf16.Encode([]rune(name))
	if len(units) > maxPacked {
		return Key{}, false
	}
	var v uint64
	for _, u := range units {
		if u > 0x7f {
			return Key{}, false
		}
		v = v<<7 | uint64(u)
	}
	v <<= 1
	for range maxPacked - len(units) {
		v = v<<7 | 0x7f
	}
	return Key{n: int64(v), pair: true}, true
}

// digits reads the two forms in which a key is written.
func digits(name string) (Key, bool) {
	switch {
	case len(name) == 16:
		a, okA := word(name[:8])
		b, okB := word(name[8:])
		return Single(int64(a)<<32 | int64(b)), okA && okB
	case len(name) == 17 && name[8] == ',':
		a, okA := word(name[:8])
		b, okB := word(name[9:])
		return Pair(int32(a), int32(b)), okA && okB
	}
	return Key{}, false
}

// word reads eight hexadecimal digits, without the signs and underscores that
// strconv would take.
func word(s string) (uint32, bool) {
	for i := range len(s) {
		c := s[i] | 0x20
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return 0, false
		}
	}
	v, err := strconv.ParseUint(s, 16, 32)
	return uint32(v), err == nil
}

// String is the key in digits; ParseKey gives the same key back.
func (k Key) String() string {
	if k.pair {
		return fmt.Sprintf("%08x,%08x", uint32(k.n>>32), uint32(k.n))
	}
	return fmt.Sprintf("%016x", uint64(k.n))
}

// Single reports the bigint of a key in that space.
func (k Key) Single() (n int64, ok bool) { return k.n, !k.pair }

// Pair reports the two integers of a key in that space.
func (k Key) Pair() (a, b int32, ok bool) { return int32(k.n >> 32), int32(uint32(k.n)), k.pair }

// space is the key's objsubid in pg_locks.
func (k Key) space() int16 {
	if k.pair {
		return 2
	}
	return 1
}

// call is the SQL of an advisory lock function on this key.
func (k Key) call(function string) string {
	if k.pair {
		return fmt.Sprintf("select pg_catalog.%s(%d, %d)", function, int32(k.n>>32), int32(uint32(k.n)))
	}
	return fmt.Sprintf("select pg_catalog.%s(%d)", function, k.n)
}
