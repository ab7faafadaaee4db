package filehold

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A program that opens a directory while another raises its tokens sees the words of the control file as they change. What
// does not fit for a moment is no damage; what stays so is.
func TestControlIsRaisedMeanwhile(t *testing.T) {
	for _, word := range []int{wCeilingN, wRevisionN, wOpen, wDurable} {
		synctest.Test(t, func(t *testing.T) {
			sub := t.TempDir()
			path := filepath.Join(sub, "control")
			good := newControl(time.Now(), 0)
			between := append([]byte(nil), good...)
			binary.NativeEndian.PutUint64(between[8*word:], binary.NativeEndian.Uint64(good[8*wCeiling:])+5)
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			put := func(b []byte) {
				if _, err := f.WriteAt(b, 0); err != nil {
					t.Error(err)
				}
			}
			put(between)
			if c, err := openControl(sub, 0o600, version, fdatasync); err == nil || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("words that do not fit for long: %v, %v", c, err)
			}
			go func() {
				time.Sleep(unsteady / 2)
				put(good)
			}()
			c, err := openControl(sub, 0o600, version, fdatasync)
			if err != nil {
				t.Fatalf("words that do not fit for a moment: %v", err)
			}
			if err := c.close(); err != nil {
				t.Error(err)
			}
		})
	}
}
