package disk_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// FuzzBackup restores from any bytes: as a whole file, or as the content of one
// whose checksums are right. What is taken gives a node that starts.
func FuzzBackup(f *testing.F) {
	files := simdisk.New()
	saved(f, files)
	file := files.Read("backups/b")
	r, err := storage.OpenBackup(files, "backups/b")
	must(f, err)
	body, err := io.ReadAll(r)
	must(f, err)
	conf := r.Meta().Conf
	f.Add(file, false)
	f.Add(body, true)
	f.Add(body[:len(body)/2], true)
	f.Fuzz(func(t *testing.T, b []byte, content bool) {
		files := simdisk.New()
		path := "backups/b"
		if content {
			path = "other/snap-0000000000000003"
			must(t, storage.Found(files, "other", options, storage.SnapshotMeta{Index: 3, Term: 1, Conf: conf}, func(w io.Writer) error {
				_, err := io.Copy(w, bytes.NewReader(b))
				return err
			}))
		} else {
			put(t, files, "backups", path, b)
		}
		if _, err := disk.Restore(files, path, anew("new", 0)); err != nil {
			return
		}
		n := run(t, files, "new", anew("new", 0).Options)
		if r := n.do(77, open()); r.Results[0].Code != core.CodeOK {
			t.Errorf("a session on what was restored: code %d", r.Results[0].Code)
		}
	})
}
