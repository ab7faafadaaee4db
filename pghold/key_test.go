package pghold_test

import (
	"io/fs"
	"math"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/pghold"
)

// TestKeyVectors: names have the keys that other programs with the same rules
// compute.
func TestKeyVectors(t *testing.T) {
	for _, v := range []struct {
		name string
		hash bool
		want pghold.Key
	}{
		{"", false, pghold.Pair(2147483647, -1)},
		{"a", false, pghold.Pair(-1023410177, -1)},
		{"A", false, pghold.Pair(-2097152001, -1)},
		{"\x00", false, pghold.Pair(16777215, -1)},
		{"lock", false, pghold.Pair(-641786185, -1)},
		{"ASCII", false, pghold.Pair(-2092032871, 805306367)},
		{"base38", false, pghold.Pair(-980967850, 1847590911)},
		{"MyLock", false, pghold.Pair(-1679399172, 2061500415)},
		{"123456789", false, pghold.Pair(1657379654, -1382303630)},
		{"my-lock!9", false, pghold.Pair(-605720883, -118120078)},
		{strings.Repeat("\x7f", 9), false, pghold.Pair(-1, -2)},
		{strings.Repeat("\x00", 9), false, pghold.Pair(0, 0)},
		{"00000003ffffffff", false, pghold.Single(17179869183)},
		{"FFFFFFFFFFFFFFFF", false, pghold.Single(-1)},
		{"80000000,7fffffff", false, pghold.Pair(math.MinInt32, math.MaxInt32)},
		{"MyLockName", true, pghold.Single(4062898426641073528)},
		{"some very long name", true, pghold.Single(1765484347666752899)},
		{"parallel_test", true, pghold.Single(-5836566728442972554)},
		{"漢字", true, pghold.Single(-1151405521232592816)},
		{"é", true, pghold.Single(-9173619709315246657)},
		{"00000003-ffffffff", true, pghold.Single(-3115067013843570165)},
		{strings.Repeat("漢", 18), true, pghold.Single(-5707277204051710361)},
	} {
		for _, hashing := range []bool{v.hash, true} {
			got, err := pghold.ParseKey(v.name, hashing)
			if err != nil || got != v.want {
				t.Errorf("%q: got %s, %v; want %s", v.name, got, err, v.want)
			}
		}
	}
}

// TestKeyWithoutHashing: a name that needs hashing is a clear error where that
// is forbidden.
func TestKeyWithoutHashing(t *testing.T) {
	for _, name := range []string{"0123456789", "é", "0000000g0000000f", "+0000001,00000001", "00000003-ffffffff", "_000000000000001"} {
		_, err := pghold.ParseKey(name, false)
		refused(t, err, fs.ErrInvalid)
		if !strings.Contains(err.Error(), "hash") || !strings.Contains(err.Error(), "9 ASCII") {
			t.Errorf("the text does not say what to do: %v", err)
		}
	}
	s := open(t, database(t)+"&holdfast_hashing=false")
	_, err := s.Mutex("0123456789").Acquire(t.Context())
	refused(t, err, fs.ErrInvalid)
	check(t, must(s.Mutex("lock").Acquire(t.Context()))(t).Release())
}

// TestKeySpaces: equal numbers in the two spaces are two keys, and the digits of
// a key are the key.
func TestKeySpaces(t *testing.T) {
	if pghold.Single(0) == pghold.Pair(0, 0) {
		t.Error("Single(0) is Pair(0, 0)")
	}
	seen := map[pghold.Key]string{}
	for c := range 127 {
		for n := range 10 {
			name := strings.Repeat(string(rune(c)), n)
			k, err := pghold.ParseKey(name, false)
			check(t, err)
			if other, ok := seen[k]; ok && other != name {
				t.Fatalf("%q and %q have one key", other, name)
			}
			seen[k] = name
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, name := range []string{"", "lock", "d9bf1eb7,ffffffff", "00000003ffffffff", "é", "some very long name"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		k, err := pghold.ParseKey(name, true)
		check(t, err)
		again, err := pghold.ParseKey(k.String(), false)
		if err != nil || again != k {
			t.Fatalf("%q is %s, which is %s: %v", name, k, again, err)
		}
		exact, err := pghold.ParseKey(name, false)
		if err == nil && exact != k {
			t.Fatalf("%q is %s with hashing and %s without", name, k, exact)
		}
	})
}
