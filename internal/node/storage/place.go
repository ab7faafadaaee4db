package storage

import (
	"encoding/json"
	"errors"
	"hash/crc32"
	"io/fs"
	"slices"
	"strconv"
	"unicode/utf8"
)

// placeName is a file that says where it was made: a copy of the directory has another file of
// that name, with the same words, and so knows that it is one.
const (
	placeName  = "place"
	placeMagic = "HFP1"
)

// Placer is an FS that knows where a file lies. Without it copies are not told from originals.
type Placer interface {
	Place(name string) (Place, error)
}

// Place is where a file lies, as far as the system tells.
type Place struct {
	Host    string // the name of the machine
	Machine string // what tells machines of one name apart
	Dir     string // without symbolic links
	// File and Born are the file itself, its inode and when that was made: it keeps them when its
	// directory is renamed, or its disk attached to another machine, and no copy has both. 0: not known.
	File, Born uint64
	// Lasts: the file system is known to keep File and Born as long as there is the file.
	Lasts bool `json:"-"`
}

// is reports whether a file that was made at p is at now. Where both last they decide, so that a copy at
// the path of its original is one, too. Elsewhere the inode may change where nothing was
// copied, and names may, where a disk is moved: not both. Without its time an inode
// tells nothing: of two new disks the first files have the same.
func (p Place) is(now Place) bool {
	same := p.Born != 0 && p.File == now.File && p.Born == now.Born
	decided := now.Lasts && p.Born != 0 && now.Born != 0
	return same || !decided && p.beside(now)
}

// beside reports whether two files have lain at one path of one machine.
func (p Place) beside(q Place) bool {
	return p.Host == q.Host && p.Machine == q.Machine && p.Dir == q.Dir
}

// spelled is the place with names that JSON keeps: those that are no UTF-8 in quotes, which no other name begins with.
func (p Place) spelled() Place {
	for _, name := range []*string{&p.Host, &p.Machine, &p.Dir} {
		if !utf8.ValidString(*name) {
			*name = strconv.Quote(*name)
		}
	}
	return p
}

// Copied says of which directory this one is a copy, or where it has been moved from.
type Copied struct {
	From Place
	// Closed: the store there had been closed before. Else it was in use, or its process had been
	// killed, and may have promised more since.
	Closed bool
	// Here: the original was at this very path, as where a backup of files was put back.
	Here bool
}

// placed is the content of the file.
type placed struct {
	Place  Place
	Closed bool
}

func encodePlace(p placed) []byte {
	text, _ := json.Marshal(p) // which has nothing that cannot be encoded
	b := append([]byte("\x00\x00\x00\x00"+placeMagic), text...)
	le.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

// decodePlace reads the content; false: it is none, so that nothing is known.
func decodePlace(b []byte) (p placed, ok bool) {
	if len(b) < 8 || string(b[4:8]) != placeMagic || le.Uint32(b) != crc32.Checksum(b[4:], castagnoli) {
		return p, false
	}
	return p, json.Unmarshal(b[8:], &p) == nil
}

// cameFrom tells whether the directory of an image is a copy, or was moved; nil: it is neither, as
// far as is known.
func (s *Store) cameFrom(m *image) (*Copied, error) {
	placer, ok := s.fs.(Placer)
	if !ok || !slices.Contains(m.names, placeName) {
		return nil, nil
	}
	b, err := m.readAll(placeName)
	if err != nil {
		return nil, err
	}
	was, ok := decodePlace(b)
	if !ok {
		return nil, nil
	}
	now, err := placer.Place(s.path(placeName))
	if now = now.spelled(); err != nil || was.Place.is(now) {
		return nil, nil // err: not known
	}
	return &Copied{From: was.Place, Closed: was.Closed, Here: was.Place.beside(now)}, nil
}

// Settle makes the place where the directory lies its own. Open does so unless it is a copy or was moved
// ([Recovered.Copied]): then it has to be known first that nobody goes on at the other place.
func (s *Store) Settle() error {
	s.copied = nil
	return s.notePlace(false)
}

// notePlace writes where the directory lies. Without room for that it forgets it, so that nobody
// takes an older word for this one.
func (s *Store) notePlace(closed bool) error {
	placer, ok := s.fs.(Placer)
	if !ok || s.copied != nil {
		return nil
	}
	temp, name := s.tempName(), s.path(placeName)
	err := s.writePlace(placer, temp, closed)
	if err == nil {
		err = s.fs.Rename(temp, name)
	}
	if lacksRoom(err) {
		return s.forgetPlace(temp)
	}
	return s.steps(
		step{"write", name, func() error { return err }},
		step{"sync directory", s.dir, func() error { return s.fs.SyncDir(s.dir) }},
	)
}

// forgetPlace removes an older word for good, and what was begun of another.
func (s *Store) forgetPlace(temp string) error {
	_ = s.fs.Remove(temp) // as the next start does
	err := s.fs.Remove(s.path(placeName))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s.steps(
		step{"remove", s.path(placeName), func() error { return err }},
		step{"sync directory", s.dir, func() error { return s.fs.SyncDir(s.dir) }},
	)
}

func (s *Store) writePlace(placer Placer, temp string, closed bool) error {
	f, err := s.fs.Create(temp)
	if err != nil {
		return err
	}
	defer f.Close()
	at, err := placer.Place(temp)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(encodePlace(placed{at.spelled(), closed}), 0); err != nil {
		return err
	}
	return f.Sync()
}
