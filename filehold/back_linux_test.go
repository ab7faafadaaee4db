package filehold_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-io/holdfast"
)

// What was lost because the directory was moved away is free in it: for those that find it in its new place, and when
// it comes back, although the program that has lost it runs on and has closed nothing.
func TestGone_LostIsFree(t *testing.T) {
	for name, at := range map[string]func(dir string) (string, error){
		"in another place": func(dir string) (string, error) { return dir + ".away", nil },
		"back":             func(dir string) (string, error) { return dir, os.Rename(dir+".away", dir) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			s, ctx := space(t, dir), deadline(t)
			leader, err1 := s.Election("e").Campaign(ctx, nil)
			own, err2 := s.Session(ctx)
			place, err3 := s.Semaphore("s", 2, holdfast.Under(own)).Acquire(ctx, 1)
			if err := errors.Join(err1, err2, err3, os.Rename(dir, dir+".away")); err != nil {
				t.Fatal(err)
			}
			for range s.Watch(ctx, "", 0) { // it learns that the directory is gone
			}
			<-leader.Done()
			<-place.Done()
			dir, err := at(dir)
			if err != nil {
				t.Fatal(err)
			}
			other := spawn(t, "servant", dir)
			other.do("lead e")
			other.do("permit s")
		})
	}
}

// A program that has lost what it held takes nothing more by the same Space when the directory is back, and is told
// why: it has to open the directory anew.
func TestGone_BackNeedsOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s, ctx := space(t, dir), deadline(t)
	h, err := s.Semaphore("s", 1).Acquire(ctx, 1)
	if err := errors.Join(err, os.Rename(dir, dir+".away")); err != nil {
		t.Fatal(err)
	}
	for range s.Watch(ctx, "", 0) { // it learns that the directory is gone
	}
	<-h.Done()
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what was lost is not free", func() bool {
		r, err := s.Inspect(ctx, "s")
		return err == nil && r.Holding == 0
	})
	for what, err := range map[string]error{
		"lock":  second(s.Mutex("m").TryAcquire(ctx)),
		"place": second(s.Semaphore("s", 1).TryAcquire(ctx, 1)),
		"lead":  second(s.Election("e").TryCampaign(ctx, nil)),
	} {
		if !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	anew := space(t, dir)
	for what, err := range map[string]error{
		"lock":  second(anew.Mutex("m").TryAcquire(ctx)),
		"place": second(anew.Semaphore("s", 1).TryAcquire(ctx, 1)),
	} {
		if err != nil {
			t.Errorf("%s, opened anew: %v", what, err)
		}
	}
}
