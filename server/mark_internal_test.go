package server

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// Promise: "A flipped bit is harmless or reported": also in the last record of a
// node that has had nothing to do for a second, and was then killed.
func TestIdleNodeVouchesForItsLastWrite(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		open := core.Frame{Session: core.SessionID{7}, Mark: 1, Commands: []core.Command{{Op: core.OpOpen, TTL: int64(time.Hour)}}}
		for _, err := s.Submit(t.Context(), &open); err != nil; _, err = s.Submit(t.Context(), &open) {
			if !errors.Is(err, driver.ErrUnavailable) {
				t.Fatal(err)
			}
			time.Sleep(s.cfg.Tick)
		}
		if err := flipLast(t, dir); errors.Is(err, storage.ErrDamaged) {
			t.Fatalf("the record is vouched for at once, so that this test shows nothing: %v", err)
		}
		time.Sleep(2 * time.Second)
		_ = s.loop.disk.do(func(*disk.Disk) error { return nil }) // what the loop gave to the disk before is done
		if err := flipLast(t, dir); !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("a node that was idle for two seconds drops its last write without a word: %v", err)
		}
	})
}

// flipLast opens a copy of a directory as kill -9 would leave it, with one bit of
// its last record wrong.
func flipLast(t *testing.T, dir string) error {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(to, "log-*"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("the log is %q, %v", logs, err)
	}
	b, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(bytes.TrimRight(b, "\x00"))-1] ^= 4
	if err := os.WriteFile(logs[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	st, _, err := storage.Open(storage.OS{}, to, storage.Options{ClusterID: 1, NodeID: 1})
	if err == nil {
		st.Close()
	}
	return err
}
