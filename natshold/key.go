package natshold

import (
	"encoding/hex"
	"strings"
)

// A key of the store is one of the bucket: its first slash is a dot, so that the
// server can tell kinds apart, and what NATS forbids in a key is written as =
// with two hexadecimal digits. Nothing after the dot is =.

// plainByte reports whether NATS allows a byte in a key, and we do not use it
// for ourselves.
func plainByte(c byte) bool {
	return c == '-' || c == '_' || c == '/' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// toBucket is where a key is in the bucket.
func toBucket(key string) string {
	kind, name, two := strings.Cut(key, "/")
	if !two || kind == "" {
		return escaped(key)
	}
	return escaped(kind) + "." + escaped(name)
}

func escaped(s string) string {
	if s == "" {
		return "="
	}
	var b strings.Builder
	for i := range len(s) {
		// A slash stands for itself, but not as the first one of a key.
		if c := s[i]; plainByte(c) && (c != '/' || i > 0) {
			b.WriteByte(c)
		} else {
			b.WriteByte('=')
			b.WriteString(strings.ToUpper(hex.EncodeToString([]byte{c})))
		}
	}
	return b.String()
}

// fromBucket is the key at a place in the bucket; false: it is none of ours.
func fromBucket(place string) (string, bool) {
	kind, name, two := strings.Cut(place, ".")
	key, ok := unescaped(kind)
	if two {
		rest, fine := unescaped(name)
		key, ok = key+"/"+rest, ok && fine
	}
	return key, ok && toBucket(key) == place
}

func unescaped(s string) (string, bool) {
	if s == "=" {
		return "", true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '=' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		c, err := hex.DecodeString(s[i+1 : i+3])
		if err != nil {
			return "", false
		}
		b.WriteByte(c[0])
		i += 2
	}
	return b.String(), true
}

// pattern is what the server is asked for to get all keys with a prefix, and
// others beside them.
func pattern(prefix string) string {
	kind, _, two := strings.Cut(prefix, "/")
	if !two || kind == "" {
		return ">"
	}
	return escaped(kind) + ".*"
}
