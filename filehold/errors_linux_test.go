package filehold_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/filehold"
)

// TestErrorsNameTheFile: an error of the file system says what was done to which file, and what to look at: "input/output error"
// alone tells nobody which disk it is.
func TestErrorsNameTheFile(t *testing.T) {
	broken := func(int) error { return syscall.EIO }
	var opened atomic.Bool
	later := func(int) error {
		if opened.Load() {
			return syscall.EIO
		}
		return nil
	}
	count := &driver.CountRequest{Name: "c", Op: driver.CountAdd, A: 1, Once: true}
	for name, c := range map[string]struct {
		change func(*filehold.Seams)
		spoil  func(store string) error
		want   []string
	}{
		"sync of the control file": {change: func(x *filehold.Seams) { x.SyncCtl = broken }, want: []string{"sync ", "control: input/output error"}},
		"sync of a new log":        {change: func(x *filehold.Seams) { x.SyncLog = broken }, want: []string{"sync ", "log: input/output error"}},
		"sync of the log":          {change: func(x *filehold.Seams) { x.SyncLog = later }, want: []string{"sync ", "log: input/output error", "see that the disk works"}},
		"log that is missing": {
			spoil: func(store string) error { return os.Remove(filepath.Join(store, "log")) },
			want:  []string{"open ", "log", "it is missing", "put back what was there"},
		},
		"log of something else": {
			spoil: func(store string) error { return os.WriteFile(filepath.Join(store, "log"), []byte("hello"), 0o600) },
			want:  []string{"open ", "log", "does not begin", "put back what was there"},
		},
		"control file that is missing": {
			spoil: func(store string) error { return os.Remove(filepath.Join(store, "control")) },
			want:  []string{"open ", "control", "beside a log", "put back what was there"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.spoil != nil {
				s, err := holdfast.Open(t.Context(), "file://"+dir)
				if err = errors.Join(err, s.Close(), c.spoil(filepath.Join(dir, ".holdfast"))); err != nil {
					t.Fatal(err)
				}
			}
			d, err := filehold.NewWith(dir, func(x *filehold.Seams) {
				if c.change != nil {
					c.change(x)
				}
			})
			opened.Store(err == nil)
			defer opened.Store(false)
			if err == nil {
				_, err = d.Count(t.Context(), count)
				_ = d.Close(t.Context())
			}
			for _, part := range append(c.want, dir) {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in %v", part, err)
				}
			}
		})
	}
}
