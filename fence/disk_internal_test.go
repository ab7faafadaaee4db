package fence

import (
	"bytes"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"testing"
)

var errPower = errors.New("the power is gone")

// crashDisk is a disk whose power fails after a number of steps. What was not
// synced may survive, in whole, in part or not at all.
type crashDisk struct {
	steps int // until the power fails
	// files and names are what the running system sees: contents by inode, and
	// inodes by name.
	files map[int][]byte
	names map[string]int
	// durable are the names that surely survive; torn are the inodes whose
	// content may not.
	durable map[string]int
	torn    map[int]bool
	next    int
}

func newCrashDisk(steps int, path string, old []byte) *crashDisk {
	return &crashDisk{steps: steps, files: map[int][]byte{0: old}, names: map[string]int{path: 0},
		durable: map[string]int{path: 0}, torn: map[int]bool{}, next: 1}
}

func (d *crashDisk) step() error {
	if d.steps == 0 {
		return errPower
	}
	d.steps--
	return nil
}

func (d *crashDisk) Create(path string) (diskFile, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	inode := d.next
	d.next++
	d.names[path], d.files[inode] = inode, nil
	return &crashFile{d, inode}, nil
}

func (d *crashDisk) Rename(from, to string) error {
	if err := d.step(); err != nil {
		return err
	}
	d.names[to] = d.names[from]
	delete(d.names, from)
	return nil
}

func (d *crashDisk) SyncDir(path string) error {
	if err := d.step(); err != nil {
		return err
	}
	for name, inode := range d.names {
		if filepath.Dir(name) == path {
			d.durable[name] = inode
		}
	}
	return nil
}

type crashFile struct {
	d     *crashDisk
	inode int
}

func (f *crashFile) Write(b []byte) (int, error) {
	if err := f.d.step(); err != nil {
		return 0, err
	}
	f.d.files[f.inode], f.d.torn[f.inode] = slices.Clone(b), true
	return len(b), nil
}

func (f *crashFile) Sync() error {
	if err := f.d.step(); err != nil {
		return err
	}
	delete(f.d.torn, f.inode)
	return nil
}

func (f *crashFile) Close() error { return f.d.step() }

// after lists every content that path can have when the machine is up again.
func (d *crashDisk) after(path string) [][]byte {
	var all [][]byte
	for _, names := range []map[string]int{d.durable, d.names} {
		inode, ok := names[path]
		content := d.files[inode]
		switch {
		case !ok:
			all = append(all, nil)
		case d.torn[inode]:
			all = append(all, nil, content[:len(content)/2], content)
		default:
			all = append(all, content)
		}
	}
	return all
}

// "temp file + fsync + rename + dir sync": after a crash at any step the file has
// the old content or the new one; after success the new one.
func TestReplaceSurvivesACrashAtEveryStep(t *testing.T) {
	const path = "/gate/state"
	old, new := encodeState("r", state{exclusive: 20}), encodeState("r", state{exclusive: 21})
	seen := map[string]bool{}
	for steps := range 10 {
		d := newCrashDisk(steps, path, old)
		err := replace(d, path, new)
		if err != nil && !errors.Is(err, errPower) {
			t.Fatal(err)
		}
		for _, content := range d.after(path) {
			if !bytes.Equal(content, new) && (err == nil || !bytes.Equal(content, old)) {
				t.Errorf("crash after %d steps, replace said %v: the file has %q", steps, err, content)
			}
		}
		seen[map[bool]string{true: "success", false: "failure"}[err == nil]] = true
	}
	if len(seen) != 2 {
		t.Errorf("not every end was seen: %v", slices.Sorted(maps.Keys(seen)))
	}
}

func TestStateFilesKeepWhatTheyAreGiven(t *testing.T) {
	for _, s := range []state{
		{},
		{exclusive: 1, shared: MaxToken},
		{exclusive: MaxToken, shared: 5},
		{exclusive: 4, shared: 9, used: []Token{5, 9}},
	} {
		for _, name := range []string{"r", "two\u2028lines", `quo"te\`, "\u00e9\u0301 name"} {
			got, err := decodeState(name, encodeState(name, s))
			if err != nil || got.exclusive != s.exclusive || got.shared != s.shared || !slices.Equal(got.used, s.used) {
				t.Errorf("%q %v: %v, %v", name, s, got, err)
			}
		}
	}
}

// Every single flipped bit and every shorter file is noticed.
func TestEveryFlippedBitIsNoticed(t *testing.T) {
	data := encodeState("r", state{exclusive: 4, shared: 9, used: []Token{5, 9}})
	for i := range data {
		for bit := range 8 {
			bad := slices.Clone(data)
			bad[i] ^= 1 << bit
			if s, err := decodeState("r", bad); err == nil {
				t.Errorf("byte %d, bit %d: %v", i, bit, s)
			}
		}
		if s, err := decodeState("r", data[:i]); err == nil {
			t.Errorf("first %d bytes: %v", i, s)
		}
	}
}

// A file with a good checksum can still say what this package never writes: it
// was edited, or comes from another version.
func TestOnlyTheOneSpellingIsRead(t *testing.T) {
	const head = "holdfast fence 1\nresource \"r\"\n"
	if s, err := decodeState("r", sealed([]byte(head+"exclusive 4\nshared 9\nused 5 9\n"))); err != nil || s.shared != 9 {
		t.Fatalf("%v, %v", s, err)
	}
	for reason, text := range map[string]string{
		"spelling":    head + "exclusive 04\nshared 9\nused 5 9\n",
		"spaces":      head + "exclusive 4\nshared 9\nused  5 9\n",
		"glued":       head + "exclusive 4\nshared 9\nused5 9\n",
		"sign":        head + "exclusive +4\nshared 9\nused\n",
		"no token":    head + "exclusive 9007199254740992\nshared 9\nused\n",
		"order":       head + "exclusive 4\nshared 9\nused 9 5\n",
		"twice":       head + "exclusive 4\nshared 9\nused 9 9\n",
		"too old":     head + "exclusive 4\nshared 9\nused 4\n",
		"too new":     head + "exclusive 4\nshared 9\nused 10\n",
		"more lines":  head + "exclusive 4\nshared 9\nused\nmore\n",
		"fewer lines": head + "exclusive 4\nshared 9\n",
		"version":     "holdfast fence 2\nresource \"r\"\nexclusive 4\nshared 9\nused\n",
	} {
		if s, err := decodeState("r", sealed([]byte(text))); err == nil {
			t.Errorf("%s: %q is read as %v", reason, text, s)
		}
	}
}

// sealed gives arbitrary text a valid checksum, so that the fuzzer gets behind it.
func sealed(text []byte) []byte {
	return append(slices.Clone(text), sumLine(text)...)
}

func FuzzDecodeState(f *testing.F) {
	f.Add("r", []byte("holdfast fence 1\nresource \"r\"\nexclusive 4\nshared 9\nused 5 9\n"))
	f.Add("r", []byte("holdfast fence 1\nresource \"r\"\nexclusive 4\nshared 9\nused 9 5\n"))
	f.Add("r", []byte("holdfast fence 1\nresource \"r\"\nexclusive 04\nshared 9\nused\n"))
	f.Add("r", []byte("holdfast fence 2\n"))
	f.Add("", []byte(nil))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		for _, data := range [][]byte{text, sealed(text)} {
			s, err := decodeState(name, data)
			if err == nil && !bytes.Equal(encodeState(name, s), data) {
				t.Errorf("%q is accepted as %v, which is written otherwise", data, s)
			}
			if err == nil && s.sane() != nil {
				t.Errorf("%q is accepted as the impossible %v", data, s)
			}
		}
	})
}
