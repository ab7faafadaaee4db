package holdfast_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/filehold"
	"github.com/holdfast-io/holdfast/memhold"
)

// A wait under a session that is revoked here is lost, and says so in words that do not
// contradict that.
func TestSession_RevokedWhileItWaits(t *testing.T) {
	file, err := filehold.Open(filepath.Join(t.TempDir(), "locks"))
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*holdfast.Space{"mem": memhold.Open(), "file": file} {
		defer s.Close()
		h, err := s.Mutex("m").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release() // before s is closed, and so held until then
		ses, err := s.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		revoke := func(int) { go func() { _ = ses.Revoke() }() }
		_, err = s.Mutex("m", holdfast.Under(ses), holdfast.OnWait(revoke)).Acquire(t.Context())
		if !errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrReleased) || !strings.Contains(err.Error(), "its session was revoked here") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
