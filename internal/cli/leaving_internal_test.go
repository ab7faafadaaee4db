package cli

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// leaving is a memory that notes what the program has said when it is closed.
type leaving struct{ driver.Driver }

var saidBefore struct{ out, then string }

func init() {
	driver.Register("leaving", func(ctx context.Context, _ *url.URL) (driver.Driver, error) {
		d, err := driver.Open(ctx, "mem://leaving")
		return leaving{d}, err
	})
}

func (l leaving) Close(ctx context.Context) error {
	b, _ := os.ReadFile(saidBefore.out)
	saidBefore.then = string(b)
	return l.Driver.Close(ctx)
}

// The error of a wait is told before the Space is closed, which takes long if the backend does not answer.
func TestErrorBeforeClose(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "g.yaml")
	if err := os.WriteFile(file, []byte("guards: {g: {when: {lock_free: held}}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := holdfast.Open(t.Context(), "mem://leaving")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h, err := s.Mutex("held").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	saidBefore.out = filepath.Join(dir, "out")
	for _, command := range []string{"guard wait --wait 10ms " + file + " g", "lock --wait 10ms held -- true"} {
		saidBefore.then = "nothing"
		code, said := runApp(t, dir, append([]string{"--url", "leaving:"}, strings.Fields(command)...)...)
		if code != exitTimeout || !strings.Contains(saidBefore.then, "error: ") {
			t.Errorf("%s: %d: when it was closed it had said %q, at the end %q", command, code, saidBefore.then, said)
		}
	}
}
