package disk_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/internal/node/storage/simdisk"
)

// newer makes an identity one of the next format version, with a right checksum.
func newer(t *testing.T, files *simdisk.Disk) {
	b := files.Read("old/identity")
	b[8] += 2 // the next is that of a node that got another number
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], crc32.MakeTable(crc32.Castagnoli)))
	f, err := files.Open("old/identity")
	must(t, err)
	_, err = f.WriteAt(b, 0)
	must(t, err)
}

// Promise: "directory of another cluster or newer version, damaged file, …, two
// processes, disk full at start: a clear message naming the file and the way
// out; nothing overwritten".
func TestBadDirectory(t *testing.T) {
	full := func(op simdisk.Op) error {
		if op.Kind == "write" || op.Kind == "create" {
			return syscall.ENOSPC
		}
		return nil
	}
	foreign := options
	foreign.ClusterID = 5
	for _, c := range []struct {
		name  string
		hurt  func(*simdisk.Disk)
		check func(simdisk.Op) error
		opts  storage.Options
		want  error
		says  []string
	}{
		{"another cluster", nil, nil, foreign, storage.ErrForeign, []string{"old/identity", "cluster 1", "cluster 5", "give the directory"}},
		{"newer version", func(d *simdisk.Disk) { newer(t, d) }, nil, options, storage.ErrVersion, []string{"old/identity", "start the newer program"}},
		{"damaged log", func(d *simdisk.Disk) { hurt(d, "old/log-0000000000000001") }, nil, options, storage.ErrDamaged, []string{"old/log-0000000000000001 at byte ", "restore a backup", "accept the loss"}},
		{"damaged identity", func(d *simdisk.Disk) { d.Flip("old/identity", 200) }, nil, options, storage.ErrDamaged, []string{"old/identity", "restore a backup"}},
		{"in use", func(d *simdisk.Disk) { _, err := d.Lock("old/LOCK"); must(t, err) }, nil, options, storage.ErrLocked, []string{"old/LOCK", "stop the other process"}},
		{"full disk", nil, full, options, syscall.ENOSPC, []string{"old/", "free space", "nothing acknowledged is lost"}},
	} {
		files := simdisk.New()
		saved(t, files)
		if c.hurt != nil {
			c.hurt(files)
		}
		before := content(files)
		var over storage.FS = files
		if c.check != nil {
			over = &simdisk.Faults{FS: files, Check: c.check}
		}
		_, _, err := disk.Open(over, "old", c.opts, replica.Joining(core.Config{}))
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, word := range c.says {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", c.name, err, word)
			}
		}
		if c.check == nil && content(files) != before {
			t.Errorf("%s: something was written", c.name)
		}
	}
}

// A disk that is full at the start, the first one or a later one, loses nothing:
// with space again the node is there.
func TestFullAtStart(t *testing.T) {
	for k := range 30 {
		files := simdisk.New()
		if k%2 == 0 {
			saved(t, files)
		}
		writes := 0
		fails := &simdisk.Faults{FS: files, Check: func(op simdisk.Op) error {
			if op.Kind == "write" || op.Kind == "create" {
				if writes++; writes > k/2 {
					return syscall.ENOSPC
				}
			}
			return nil
		}}
		founders := replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}})
		if d, _, err := disk.Open(fails, "old", options, founders); err == nil {
			d.Close()
		} else if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "old/") {
			t.Errorf("full after %d writes: %v", k/2, err)
		}
		n := run(t, files.Crash(func(int) int { return k / 2 % 2 }), "old", options, replica.Endpoint{ID: 1})
		if want := uint64(20 * (1 - k%2)); n.orders() != want {
			t.Errorf("full after %d writes: orders are %d, want %d", k/2, n.orders(), want)
		}
	}
}
