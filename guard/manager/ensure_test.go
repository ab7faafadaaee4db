package manager_test

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard/manager"
	"github.com/holdfast-io/holdfast/memhold"
)

// What could never be acquired is refused when it is made known, and not by every acquire.
func TestEnsure_Refused(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	m, long := manage(t, s), strings.Repeat("n", 600)
	for _, c := range []manager.LockConfig{
		{Name: long}, {Name: "a\xffb"}, {Name: "a\nb"}, {Name: "short", StaleThreshold: 1}, {Name: "long", StaleThreshold: 1000 * time.Hour},
	} {
		refused(t, m.EnsureLock(c), fs.ErrInvalid)
		refused(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: c.Name, MaxSlots: 2, StaleThreshold: c.StaleThreshold}), fs.ErrInvalid)
	}
	if n := len(m.LockNames()) + len(m.SemaphoreNames()); n > 0 {
		t.Errorf("%d are known", n)
	}
	for name, threshold := range map[string]time.Duration{long[:512]: 0, "least": time.Second, "most": 24 * time.Hour} {
		ok(t, m.EnsureLock(manager.LockConfig{Name: name, StaleThreshold: threshold}))
		must[holdfast.Token](t)(m.AcquireLock(t.Context(), name, "w1", ""))
	}
}
