package filehold_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/filehold"
)

// disk remembers what of a directory's files was synced, and can lose the rest.
type disk struct {
	t    *testing.T
	dir  string
	boot string
	// synced are the contents at the last sync, by path.
	synced map[string][]byte
}

func newDisk(t *testing.T) *disk {
	return &disk{t: t, dir: t.TempDir(), boot: "boot 1", synced: map[string][]byte{}}
}

func (d *disk) seams(s *filehold.Seams) {
	boot := d.boot
	s.BootID = func() (string, error) { return boot, nil }
	keep := func(file string) func(int) error {
		path := filepath.Join(d.dir, ".holdfast", file)
		return func(int) error {
			b, err := os.ReadFile(path)
			d.synced[path] = b
			return err
		}
	}
	s.SyncLog, s.SyncCtl = keep("log"), keep("control")
}

// loses runs use on the directory, then cuts the power: what was not synced is
// gone.
func (d *disk) loses(use func(s *holdfast.Space)) {
	d.t.Helper()
	drv, err := filehold.NewWith(d.dir, d.seams)
	if err != nil {
		d.t.Fatal(err)
	}
	s, err := holdfast.New(drv)
	if err != nil {
		d.t.Fatal(err)
	}
	use(s)
	if err := s.Close(); err != nil {
		d.t.Fatal(err)
	}
	for path, b := range d.synced {
		if err := os.WriteFile(path, b, 0o666); err != nil {
			d.t.Fatal(err)
		}
	}
	d.boot += "'"
}

// Tokens of every kind grow although all that was not synced is lost, and
// although the lock file is deleted.
func TestTokensSurvivePowerLoss(t *testing.T) {
	d := newDisk(t)
	last := map[string]holdfast.Token{}
	for range 4 {
		d.loses(func(s *holdfast.Space) {
			ctx := deadline(t)
			for range 3 {
				for what, take := range takers {
					h, err := take(ctx, s.Sub(what), "x")
					if err != nil {
						t.Fatal(what, err)
					}
					if h.Token() <= last[what] {
						t.Errorf("%s: the token %d came after %d", what, h.Token(), last[what])
					}
					last[what] = h.Token()
					if err := h.Release(); err != nil {
						t.Error(err)
					}
				}
				if err := os.Remove(filepath.Join(d.dir, filehold.FileName("lockx"))); err != nil {
					t.Error(err)
				}
			}
			for range 50 { // many that no sync follows
				h, err := takers["permit"](ctx, s.Sub("permit"), "x")
				if err != nil {
					t.Fatal(err)
				}
				last["permit"] = h.Token()
				if err := h.Release(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A new directory in the place of a wiped one begins above its tokens, also within the same moment.
func TestTokensSurviveWiping(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	var last holdfast.Token
	for range 5 {
		s := space(t, dir)
		for range 100 {
			h, err := s.Mutex("m").Acquire(deadline(t))
			if err != nil {
				t.Fatal(err)
			}
			if h.Token() <= last {
				t.Fatalf("the token %d came after %d", h.Token(), last)
			}
			last = h.Token()
			if err := h.Release(); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(s.Close(), os.RemoveAll(dir)); err != nil {
			t.Fatal(err)
		}
	}
}

// What was answered is there after the power failed, and revisions only grow.
func TestAnswersSurvivePowerLoss(t *testing.T) {
	d := newDisk(t)
	var count int64
	var rev holdfast.Revision
	for round := range 4 {
		d.loses(func(s *holdfast.Space) {
			ctx := deadline(t) // not over the boots, each of which skips many revisions
			n, err := s.Counter("c").Load(ctx)
			if err != nil || n != count {
				t.Fatalf("round %d: the counter is %d, %v; want %d", round, n, err, count)
			}
			if round > 0 {
				e, err := s.KV().Get(ctx, "k")
				if err != nil || e.Modified != rev {
					t.Fatalf("round %d: the key is at %d, %v; want %d", round, e.Modified, err, rev)
				}
			}
			if _, err := s.KV().Get(ctx, "mine"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("round %d: a key of a dead session: %v", round, err)
			}
			if count, err = s.Counter("c").Add(ctx, 5); err != nil {
				t.Fatal(err)
			}
			ses, err := s.Session(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.KV().Put(ctx, "mine", nil, holdfast.Under(ses)); err != nil {
				t.Fatal(err)
			}
			next, err := s.KV().Put(ctx, "k", []byte{byte(round)})
			if err != nil || next <= rev {
				t.Fatalf("the revision %d came after %d, %v", next, rev, err)
			}
			rev = next
			// Changes that need no sync, and are lost.
			h, err := s.Semaphore("s", 1).Acquire(ctx, 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Release(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A ceiling is not raised for every token.
func TestTokensAreCheap(t *testing.T) {
	d := newDisk(t)
	syncs := 0
	s := openDriver(t, d.dir, func(x *filehold.Seams) {
		sync := x.SyncCtl
		x.SyncCtl = func(fd int) error { syncs++; return sync(fd) }
	})
	first := syncs
	for range 100 {
		h, err := s.Mutex("m").Acquire(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if syncs > first+1 {
		t.Errorf("100 tokens took %d syncs", syncs-first)
	}
}
