package natshold_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/natshold"
)

// valid is what NATS allows as a key.
var valid = regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)

func TestKeys(t *testing.T) {
	for key, want := range map[string]string{
		"l/jobs/nightly":   "l.jobs/nightly",
		"k/a.b":            "k.a=2Eb",
		"c/":               "c.=",
		"c/=":              "c.=3D",
		"q/*>":             "q.=2A=3E",
		"k/ü x":            "k.=C3=BC=20x",
		"k//":              "k.=2F",
		"k/a//b/":          "k.a//b/",
		"":                 "=",
		"/x":               "=2Fx",
		"no-slash_at.all0": "no-slash_at=2Eall0",
	} {
		got := natshold.ToBucket(key)
		if got != want {
			t.Errorf("%q is at %q; want %q", key, got, want)
		}
		if back, ok := natshold.FromBucket(got); back != key || !ok {
			t.Errorf("%q comes back as %q, %t", key, back, ok)
		}
	}
	for _, place := range []string{"k.", "k.a.b", "k.=2", "k.=zz", "k.=61", "k.=2e", ".x", "k.a b", "k.==", "="[:0]} {
		if key, ok := natshold.FromBucket(place); ok {
			t.Errorf("%q is taken for the key %q", place, key)
		}
	}
}

func FuzzKeys(f *testing.F) {
	for _, s := range []string{"l/a", "k.=2E", "=", "..", "k/\xff/\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		place := natshold.ToBucket(s)
		if !valid.MatchString(place) || strings.HasPrefix(place, ".") || strings.HasSuffix(place, ".") || strings.Contains(place, "..") {
			t.Fatalf("%q is at %q, which NATS refuses", s, place)
		}
		if back, ok := natshold.FromBucket(place); back != s || !ok {
			t.Fatalf("%q comes back as %q, %t", s, back, ok)
		}
		if key, ok := natshold.FromBucket(s); ok && natshold.ToBucket(key) != s {
			t.Fatalf("%q and %q are both the place of %q", s, natshold.ToBucket(key), key)
		}
	})
}
