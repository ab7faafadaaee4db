package gather

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
)

// Waits that look at the same moment share one run of a command: that of the first, and another for those that came while it ran.
func TestCommands_Shared(t *testing.T) {
	dir := t.TempDir()
	write := func(file, text string) {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("check.sh", "echo >>runs; until [ -e go ]; do sleep 0.01; done\n")
	s := &Commands{Dir: dir, Timeout: time.Minute}
	g, c := New(Config{Commands: s, Timeout: time.Minute}), guard.CustomCheck("sh check.sh", "")
	const looks = 20
	var all sync.WaitGroup
	for range looks {
		all.Go(func() {
			if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Passed {
				t.Error(r)
			}
		})
	}
	waiting := func() int {
		s.facts.mu.Lock()
		defer s.facts.mu.Unlock()
		if f := s.facts.flights[c.Input()]; f != nil {
			return f.users
		}
		return 0
	}
	runs := func() int {
		b, _ := os.ReadFile(filepath.Join(dir, "runs")) // none has begun yet
		return len(b)
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for waiting() < looks && runs() < looks {
		<-again.C
	}
	write("go", "")
	all.Wait()
	if n := runs(); n < 1 || n > 2 || waiting() != 0 {
		t.Errorf("%d looks have run it %d times", looks, n)
	}
}
