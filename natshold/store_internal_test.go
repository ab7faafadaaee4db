package natshold

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
)

// A key that was deleted, as the tools of NATS do it too, is not there, and can be made again.
func TestDeletedKey(t *testing.T) {
	s, _ := counted(t)
	var last driver.Revision
	for range 2 {
		at, err := s.Swap(t.Context(), "k/a", 0, []byte("v"))
		if err != nil || at <= last {
			t.Fatalf("made at %d after %d: %v", at, last, err)
		}
		if last, err = s.Delete(t.Context(), "k/a", at); err != nil {
			t.Fatal(err)
		}
		if item, err := s.Get(t.Context(), "k/a"); err != nil || item.Revision != 0 {
			t.Errorf("a deleted key is %+v, %v", item, err)
		}
		if items, err := s.List(t.Context(), "k/"); err != nil || len(items) != 0 {
			t.Errorf("there are %+v, %v", items, err)
		}
	}
}

// A server with revisions before those that it has told has lost what it had answered: the bucket is not used any more.
func TestRevisionsGoneBack(t *testing.T) {
	s, _ := counted(t)
	s.saw(1 << 62)
	s.mark.looked.Store(driver.Now().UnixNano()) // no look at the bucket's set-up sees it first
	for range 2 {
		_, err := s.Swap(t.Context(), "k/a", 0, []byte("v"))
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "have gone back") {
			t.Errorf("a change: %v", err)
		}
	}
}
