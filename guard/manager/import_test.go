package manager_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/manager"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/memhold"
)

// The seed: "Coordination state persists across restarts", "Storage operations are atomic
// (write temp file, rename)", "Integration tests for persistence", "Coordination state persists to disk", "Recovery works
// after restart". After a restart everybody has a full threshold.
func TestExportImport(t *testing.T) {
	for _, backend := range backends.All {
		t.Run(backend, func(t *testing.T) {
			a, b := backends.Open(t, backend)
			ctx, path := t.Context(), filepath.Join(t.TempDir(), "coordination.json")
			m := must[*manager.Manager](t)(manager.New(manager.Config{Space: a}))
			ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
			ok(t, m.EnsureLock(manager.LockConfig{Name: "free"}))
			ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "agents", MaxSlots: 3}))
			old := must[holdfast.Token](t)(m.AcquireLock(ctx, "main", "w1", "why"))
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w1", 1, ""))
			must[holdfast.Token](t)(m.AcquireSemaphore(ctx, "agents", "w2", 2, ""))
			ok(t, m.Export(path))
			ok(t, m.Export(path))
			next := manage(t, b)
			done := make(chan error, 1)
			go func() { done <- next.Import(ctx, path) }()
			ok(t, m.Close()) // what the manager before still had was waited for
			ok(t, <-done)
			l, _ := next.GetLock("main")
			s, _ := next.GetSemaphore("agents")
			if l.Holder == nil || l.Holder.ID != "w1" || l.Holder.Metadata != "why" || l.Holder.Token <= old || s.Used() != 3 || len(s.Holders) != 2 {
				t.Errorf("%+v, %+v", l.Holder, s)
			}
			if !slices.Equal(next.LockNames(), []string{"free", "main"}) {
				t.Errorf("locks %v", next.LockNames())
			}
			ok(t, next.ReleaseLock(ctx, "main", "w1"))
			if list := must[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(path))); len(list) != 1 {
				t.Errorf("files %v", list)
			}
		})
	}
}

// A manager that was killed: what it held is taken over after one threshold, and its
// holders have another whole one.
func TestImport_AfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		ctx, path := t.Context(), filepath.Join(t.TempDir(), "f.json")
		dead := must[*manager.Manager](t)(manager.New(manager.Config{Space: s})) // nobody calls it again
		ok(t, dead.EnsureLock(manager.LockConfig{Name: "main"}))
		must[holdfast.Token](t)(dead.AcquireLock(ctx, "main", "w1", ""))
		ok(t, dead.Export(path))
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s}))
		defer m.Close()
		began := time.Now()
		ok(t, m.Import(ctx, path))
		if took := time.Since(began); took < 59*time.Second || took > 61*time.Second {
			t.Errorf("it took %s", took)
		}
		time.Sleep(55 * time.Second)
		ok(t, m.HeartbeatLock(ctx, "main", "w1"))
	})
}

// A name that stays held is no reason to wait for the names behind it: the error names
// the one that did not come back.
func TestImport_OneIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		path := filepath.Join(t.TempDir(), "f.json")
		ok(t, os.WriteFile(path, []byte(`{"version":1,"locks":[{"name":"a","holders":[{"holder":"x","weight":1}]},{"name":"b","holders":[{"holder":"x","weight":1}]}]}`), 0o644))
		h := must[*holdfast.Hold](t)(s.Mutex("a").Acquire(t.Context()))
		defer h.Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s}))
		defer m.Close()
		if err := m.Import(ctx, path); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"a"`) || strings.Contains(err.Error(), `"b"`) {
			t.Errorf("got %v", err)
		}
		if l, _ := m.GetLock("b"); l.Holder == nil {
			t.Error("b did not come back")
		}
	})
}

// Everybody has a full threshold when an import is over, also one that had its own long before: the names of others
// may be waited for much longer than that.
func TestImport_FullThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must[*holdfast.Space](t)(holdfast.New(slow{memhold.New()}))
		defer s.Close()
		ctx, path := t.Context(), filepath.Join(t.TempDir(), "f.json")
		ok(t, os.WriteFile(path, []byte(`{"version":1,"locks":[{"name":"a","holders":[{"holder":"x","weight":1}]},{"name":"b","holders":[{"holder":"x","weight":1}]}]}`), 0o644))
		h := must[*holdfast.Hold](t)(s.Mutex("a").Acquire(ctx))
		time.AfterFunc(10*time.Minute, func() { _ = h.Release() })
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s}))
		defer m.Close()
		ok(t, m.Import(ctx, path))
		if l, _ := m.GetLock("b"); l.Holder == nil || l.Holder.Stale || time.Since(l.Holder.LastHeartbeat) > time.Second {
			t.Errorf("after the import b has the holder %+v", l.Holder)
		}
		time.Sleep(55 * time.Second)
		ok(t, m.HeartbeatLock(ctx, "a", "x"))
		ok(t, m.HeartbeatLock(ctx, "b", "x"))
	})
}

// What was taken from a holder by force while its import still waits for other names is left to maintenance after the threshold, as ever:
// the import does not speak for it any more.
func TestImport_Forced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open()
		defer s.Close()
		ctx, path := t.Context(), filepath.Join(t.TempDir(), "f.json")
		ok(t, os.WriteFile(path, []byte(`{"version":1,"locks":[{"name":"a","holders":[{"holder":"x","weight":1}]},{"name":"b","holders":[{"holder":"x","weight":1}]}]}`), 0o644))
		h := must[*holdfast.Hold](t)(s.Mutex("a").Acquire(ctx))
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s}))
		defer m.Close()
		done := make(chan error, 1)
		go func() { done <- m.Import(ctx, path) }()
		time.Sleep(time.Minute)
		force(t, s, "b", false)
		time.Sleep(2 * manager.DefaultStaleThreshold)
		if found := must[[]manager.Stale](t)(m.Tick(ctx)); len(found) != 1 || found[0].Name != "b" || !found[0].Reclaimed {
			t.Errorf("maintenance found %+v", found)
		}
		ok(t, h.Release())
		ok(t, <-done)
	})
}

// slow is a backend that takes its time to keep a session, as a group of nodes does, which gathers heartbeats.
type slow struct{ driver.Driver }

func (s slow) KeepSession(ctx context.Context, session *driver.Session, ttl time.Duration) error {
	time.Sleep(100 * time.Millisecond)
	return s.Driver.KeepSession(ctx, session, ttl)
}

// Holders of one semaphore get it back one after the other, and their heartbeats are not waited for one by one.
func TestImport_ManyHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must[*holdfast.Space](t)(holdfast.New(slow{memhold.New()}))
		defer s.Close()
		var holders []string
		for i := range 1000 {
			holders = append(holders, fmt.Sprintf(`{"holder":"h%d","weight":1,"token":%d}`, i, i+1))
		}
		path := filepath.Join(t.TempDir(), "f.json")
		ok(t, os.WriteFile(path, fmt.Appendf(nil, `{"version":1,"semaphores":[{"name":"s","max_slots":1000,"holders":[%s]}]}`, strings.Join(holders, ",")), 0o644))
		m := must[*manager.Manager](t)(manager.New(manager.Config{Space: s}))
		defer m.Close()
		began := time.Now()
		ok(t, m.Import(t.Context(), path))
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
		list, _ := m.GetSemaphore("s")
		for i, h := range list.Holders {
			if h.ID != fmt.Sprint("h", i) || h.Stale {
				t.Fatalf("the holder %d is %+v", i, h)
			}
		}
	})
}

// Files that make no sense change nothing.
func TestImport_Bad(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	m, path := manage(t, s), filepath.Join(t.TempDir(), "f.json")
	refused(t, m.Import(t.Context(), path), fs.ErrNotExist)
	for _, text := range []string{"", "{", `{"version":2}`, `[]`, `{"version":1,"locks":[{"name":""}]}`, `{"version":1,"locks":[{"name":"a","max_slots":2}]}`,
		`{"version":1,"locks":[{"name":"fine"}],"semaphores":[{"name":"a"}]}`, `{"version":1,"locks":[{"name":"a","stale_threshold_ms":-1}]}`,
		`{"version":1,"locks":[{"name":"a"},{"name":"a"}]}`, `{"version":1,"locks":[{"name":"a","colour":1}]}`, `{"version":1} {}`, `{"version":1,"Locks":[{"name":"a"}]}`,
		`{"version":1,"locks":[{"name":"a"}],"locks":[{"name":"b"}]}`, `{"version":1,"locks":[{"name":"a","Name":"b"}]}`, `{"version":1,"locks":[{"name":"\ud800"}]}`, "{\"version\":1,\"locks\":[{\"name\":\"\xff\"}]}",
		`{"version":1,"locks":[{"name":"a","stale_threshold_ms":9223372036854775807}]}`, `{"version":1,"locks":[{"name":"fine"},{"name":"a","stale_threshold_ms":1}]}`,
		`{"version":1,"locks":[{"name":"a","holders":[{"holder":"","weight":1}]}]}`, `{"version":1,"locks":[{"name":"a","holders":[{"holder":"x","weight":2}]}]}`,
		`{"version":1,"locks":[{"name":"a","holders":[{"holder":"x","weight":1},{"holder":"y","weight":1}]}]}`,
		`{"version":1,"semaphores":[{"name":"a","max_slots":3,"holders":[{"holder":"x","weight":1},{"holder":"x","weight":1}]}]}`,
		`{"version":1,"semaphores":[{"name":"a","max_slots":3,"holders":[{"holder":"x","weight":2},{"holder":"y","weight":2}]}]}`} {
		ok(t, os.WriteFile(path, []byte(text), 0o644))
		refused(t, m.Import(t.Context(), path), fs.ErrInvalid)
		if len(m.LockNames())+len(m.SemaphoreNames()) > 0 {
			t.Fatalf("%s: %v %v", text, m.LockNames(), m.SemaphoreNames())
		}
	}
	if err := m.Export(filepath.Join(path, "below")); err == nil {
		t.Error("an export below a file")
	}
}

// What is there and no regular file is left as it is.
func TestExport_NoRegularFile(t *testing.T) {
	s, dir := memhold.Open(), t.TempDir()
	defer s.Close()
	m := manage(t, s)
	socket := must[net.Listener](t)(net.Listen("unix", filepath.Join(dir, "socket"))) // never a device of the machine, which root could replace
	defer socket.Close()
	ok(t, os.Symlink(filepath.Join(dir, "socket"), filepath.Join(dir, "link")))
	ok(t, os.Mkdir(filepath.Join(dir, "empty"), 0o700))
	refused(t, m.Export(""), fs.ErrInvalid)
	for _, name := range []string{"socket", "link", "empty"} {
		refused(t, m.Export(filepath.Join(dir, name)), fs.ErrInvalid)
	}
	if info := must[os.FileInfo](t)(os.Stat(filepath.Join(dir, "link"))); info.Mode().IsRegular() {
		t.Error("a socket was replaced")
	}
	if list := must[[]os.DirEntry](t)(os.ReadDir(dir)); len(list) != 3 {
		t.Errorf("files %v", list)
	}
}

// A link stays one, and the file that it leads to is replaced; one that leads to none is refused.
func TestExport_Link(t *testing.T) {
	s, dir, other := memhold.Open(), t.TempDir(), t.TempDir()
	defer s.Close()
	m := manage(t, s)
	file, link := filepath.Join(other, "file"), filepath.Join(dir, "link")
	ok(t, os.WriteFile(file, nil, 0o600))
	ok(t, os.Symlink(file, link))
	ok(t, m.Export(link))
	if to, err := os.Readlink(link); err != nil || to != file {
		t.Errorf("the link leads to %q: %v", to, err)
	}
	if b := must[[]byte](t)(os.ReadFile(file)); len(b) == 0 {
		t.Error("the file was not replaced")
	}
	ok(t, os.Remove(file))
	refused(t, m.Export(link), fs.ErrInvalid)
	for dir, most := range map[string]int{dir: 1, other: 0} {
		if list := must[[]os.DirEntry](t)(os.ReadDir(dir)); len(list) != most {
			t.Errorf("files %v", list)
		}
	}
}

// A manager that is closed has nothing to write, takes nothing, and waits for nothing.
func TestExport_Closed(t *testing.T) {
	s, path := memhold.Open(), filepath.Join(t.TempDir(), "f.json")
	defer s.Close()
	m := manage(t, s)
	empty := filepath.Join(t.TempDir(), "empty.json")
	ok(t, m.Export(empty))
	ok(t, m.Close())
	refused(t, m.Export(path), holdfast.ErrClosed)
	refused(t, m.Import(t.Context(), empty), holdfast.ErrClosed)
	refused(t, m.EnsureLock(manager.LockConfig{Name: "late"}), holdfast.ErrClosed)
	refused(t, m.RegisterGuard(manager.Guard{ID: "late", Condition: guard.LockFree("x")}), holdfast.ErrClosed)
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was written")
	}
}

// Of a Space that is closed nothing is written: what was held would be missing.
func TestExport_SpaceClosed(t *testing.T) {
	s, path := memhold.Open(), filepath.Join(t.TempDir(), "f.json")
	m := manage(t, s)
	ok(t, m.EnsureLock(manager.LockConfig{Name: "main"}))
	must[holdfast.Token](t)(m.AcquireLock(t.Context(), "main", "w1", ""))
	ok(t, s.Close())
	refused(t, m.Export(path), holdfast.ErrClosed)
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was written")
	}
}

// A name is a lock or a semaphore, also in a file.
func TestKinds(t *testing.T) {
	s := memhold.Open()
	defer s.Close()
	m := manage(t, s)
	ok(t, m.EnsureLock(manager.LockConfig{Name: "a"}))
	refused(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "a", MaxSlots: 1}), holdfast.ErrConflict)
	ok(t, m.EnsureSemaphore(manager.SemaphoreConfig{Name: "b", MaxSlots: 1}))
	refused(t, m.EnsureLock(manager.LockConfig{Name: "b"}), holdfast.ErrConflict)
	for text, want := range map[string]error{
		`{"version":1,"locks":[{"name":"b"}],"semaphores":[]}`:                           holdfast.ErrConflict,
		`{"version":1,"locks":[{"name":"c"}],"semaphores":[{"name":"c","max_slots":2}]}`: fs.ErrInvalid,
		`{"version":1,"locks":[{"name":"d"}],"semaphores":[{"name":"a","max_slots":2}]}`: holdfast.ErrConflict,
	} {
		path := filepath.Join(t.TempDir(), "f.json")
		ok(t, os.WriteFile(path, []byte(text), 0o600))
		refused(t, m.Import(t.Context(), path), want)
	}
	if names := m.LockNames(); len(names) != 1 {
		t.Errorf("locks %q", names)
	}
}
