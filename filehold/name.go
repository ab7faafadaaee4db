package filehold

import (
	"crypto/sha512"
	"io/fs"
	"path/filepath"
	"unicode"
	"unicode/utf16"

	"github.com/holdfast-io/holdfast/driver"
)

const (
	stem      = 27   // UTF-16 units of the name that stay readable
	hashLen   = 32   // characters, 5 bits each
	shortHash = 12   // characters of the hash that the last fallback keeps
	maxPath   = 4095 // bytes of a path
	lockExt   = ".lock"

	maxFileName = stem*3 + hashLen + len(lockExt) // bytes of a lock file's name: no unit takes more than three
)

// FileName is the lock file of a name: what is readable of it, a hash that
// tells it from every other, and ".lock". It is that of the library that
// programs on other platforms may use on the same directory, so that both
// exclude each other.
func FileName(name string) string { return readableStem(name) + hash(name) + lockExt }

// readableStem is what is readable of a name.
func readableStem(name string) string {
	units := utf16.Encode([]rune(name))
	units = units[:min(len(units), stem)]
	clean := make([]rune, len(units))
	for i, u := range units {
		clean[i] = readable(rune(u))
	}
	return string(clean)
}

// readable keeps letters, digits and the underscore; half of a pair is none.
func readable(r rune) rune {
	if !utf16.IsSurrogate(r) && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
		return r
	}
	return '_'
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

// hash spells the first 160 bits of SHA-512, the lowest bits of a byte first.
func hash(name string) string {
	sum := sha512.Sum512([]byte(name))
	out := make([]byte, hashLen)
	for i := range out {
		at := i * 5
		pair := uint(sum[at/8]) | uint(sum[at/8+1])<<8
		out[i] = alphabet[pair>>(at%8)&31]
	}
	return string(out)
}

// lockFile is the lock file of a name in dir: shorter where the path would be
// too long.
func lockFile(dir, name string) (string, error) {
	full := hash(name)
	for _, file := range []string{FileName(name), full, full[:shortHash]} {
		if len(filepath.Join(dir, file)) <= maxPath {
			return file, nil
		}
	}
	return "", driver.Errorf("", name, fs.ErrInvalid, "the path of a lock file in %s would exceed %d bytes: use a directory with a shorter path", dir, maxPath)
}
